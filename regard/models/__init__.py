"""MODELS: by name, an architecture's configuration and its class; those of other packages by `regard.models`."""

from torch import nn

from regard.plugins import Registry

MODELS: Registry[tuple[type, type[nn.Module]]] = Registry(
    "regard.models",
    "model",
    {
        "transformer": "regard.models.transformer:MODEL",
        "gpt": "regard.models.gpt:MODEL",
        "bert": "regard.models.bert:MODEL",
        "vit": "regard.models.vit:MODEL",
        "convnet": "regard.models.convnet:MODEL",
        "recurrent": "regard.models.recurrent:MODEL",
        "convolutional": "regard.models.convolutional:MODEL",
        "pointer": "regard.models.pointer_network:MODEL",
        "recurrent-language": "regard.models.recurrent_language:MODEL",
        "recurrent-reader": "regard.models.recurrent_reader:MODEL",
        "elmo": "regard.models.elmo:MODEL",
        "rwkv": "regard.models.rwkv:MODEL",
        "lstmn": "regard.models.lstmn:MODEL",
        "captioner": "regard.models.captioner:MODEL",
        "several-sources": "regard.models.several_sources:MODEL",
        "whisper": "regard.models.whisper:MODEL",
        "listener": "regard.models.listener:MODEL",
        "parser": "regard.models.tree_parser:MODEL",
    },
)
