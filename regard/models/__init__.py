"""MODELS: a plain dict from an architecture's name to its configuration and class."""

from regard.models.bert import Bert, BertConfig
from regard.models.convolutional import Convolutional, ConvolutionalConfig
from regard.models.elmo import Elmo, ElmoConfig
from regard.models.gpt import GPT, GPTConfig
from regard.models.lstmn import LSTMN, LSTMNConfig
from regard.models.pointer import PointerConfig, PointerNetwork
from regard.models.recurrent import RecurrentConfig, RecurrentModel
from regard.models.recurrent_language import RecurrentLanguageConfig, RecurrentLanguageModel
from regard.models.recurrent_reader import RecurrentReader, RecurrentReaderConfig
from regard.models.rwkv import RWKV, RWKVConfig
from regard.models.transformer import Transformer, TransformerConfig
from regard.models.vit import ViT, ViTConfig

MODELS = {
    "transformer": (TransformerConfig, Transformer),
    "gpt": (GPTConfig, GPT),
    "bert": (BertConfig, Bert),
    "vit": (ViTConfig, ViT),
    "recurrent": (RecurrentConfig, RecurrentModel),
    "convolutional": (ConvolutionalConfig, Convolutional),
    "pointer": (PointerConfig, PointerNetwork),
    "recurrent-language": (RecurrentLanguageConfig, RecurrentLanguageModel),
    "recurrent-reader": (RecurrentReaderConfig, RecurrentReader),
    "elmo": (ElmoConfig, Elmo),
    "rwkv": (RWKVConfig, RWKV),
    "lstmn": (LSTMNConfig, LSTMN),
}
