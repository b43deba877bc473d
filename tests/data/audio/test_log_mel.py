import numpy as np
import pytest
import torch

from regard.data.audio import MelConfig, log_mel, mel_filters
from regard.errors import ConfigError

NOISE = np.random.default_rng(0).normal(0, 0.1, 8000).astype(np.float32)


@pytest.mark.parametrize("norm", ["area", "none"])
@pytest.mark.parametrize("scale", ["slaney", "htk"])
def test_filters_are_those_of_transformers(scale, norm):
    from transformers.audio_utils import mel_filter_bank

    config = MelConfig(bands=40, low=60.0, high=7600.0, scale=scale, norm=norm)
    wanted = mel_filter_bank(201, 40, 60.0, 7600.0, 16000, norm="slaney" if norm == "area" else None, mel_scale=scale)
    np.testing.assert_allclose(mel_filters(config).numpy(), wanted, atol=1e-6)


@pytest.mark.parametrize("scale", ["slaney", "htk"])
def test_frames_are_those_of_transformers(scale):
    from transformers.audio_utils import spectrogram, window_function

    config = MelConfig(bands=40, scale=scale)
    wanted = spectrogram(
        NOISE, window_function(400, "hann"), 400, 160, power=2.0, mel_filters=mel_filters(config).numpy(), log_mel="log"
    )
    found = log_mel(torch.from_numpy(NOISE), config)
    np.testing.assert_allclose(found.numpy(), wanted.T[: len(found)], atol=1e-4)


def test_whispers_frames_are_those_of_transformers():
    from transformers import WhisperFeatureExtractor

    extractor = WhisperFeatureExtractor(chunk_length=1)
    wanted = extractor(NOISE, sampling_rate=16000, return_tensors="np").input_features[0].T
    padded = np.pad(NOISE, (0, 8000))
    found = log_mel(torch.from_numpy(padded), MelConfig(log="whisper"))
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-4)


def test_a_batch_is_its_rows():
    both = torch.from_numpy(np.stack((NOISE, NOISE[::-1].copy())))
    found = log_mel(both, MelConfig(log="whisper"))
    torch.testing.assert_close(found[1], log_mel(both[1], MelConfig(log="whisper")))


@pytest.mark.parametrize("length", [1, 150, 200, 400, 1000])
def test_a_short_sound_has_a_frame_at_least(length):
    found = log_mel(torch.ones(length), MelConfig())
    assert found.shape == (max(1, length // 160), 80)
    assert found.isfinite().all()


@pytest.mark.parametrize("wrong", [{"hop": 401}, {"bands": 0}, {"low": 9000.0}, {"high": 9000.0}])
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ConfigError):
        MelConfig(**wrong)
