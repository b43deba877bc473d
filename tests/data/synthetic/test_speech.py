"""Bundled speech: many voices that nobody hears twice, words where they are said, noise as loud as it is told."""

import numpy as np
import pytest
import torch

from regard.data.audio import MelConfig, log_mel
from regard.data.synthetic.speech import (
    DIGITS,
    LENGTHS,
    PRONUNCIATIONS,
    RATE,
    VOICES,
    VOICES_OF,
    SpokenSounds,
    Utterance,
    phone,
    speak,
    utterance,
    utterances,
)


def test_there_are_words_and_voices_enough_and_no_voice_is_in_two_parts():
    assert set(DIGITS) <= set(PRONUNCIATIONS)
    assert len(PRONUNCIATIONS) >= 60
    assert len(VOICES_OF["train"]) >= 20
    heard = [voice for part in VOICES_OF.values() for voice in part]
    assert sorted(heard) == list(range(len(VOICES)))
    assert max(one.pitch for one in VOICES) > 2 * min(one.pitch for one in VOICES)
    assert len(set(VOICES)) == len(VOICES)


def test_every_word_can_be_said():
    assert len(set(PRONUNCIATIONS.values())) == len(PRONUNCIATIONS)
    for phones in PRONUNCIATIONS.values():
        assert all(phone(name) for name in phones.split())


@pytest.mark.parametrize("lexicon", ["digits", "words"])
def test_utterances_are_a_function_of_their_number(lexicon):
    fewest, most = LENGTHS[lexicon]
    found = list(utterances(300, lexicon=lexicon))
    assert {len(one.words) for one in found} == set(range(fewest, most + 1))
    assert {one.voice for one in found} == set(VOICES_OF["train"])
    assert found[7] == utterance(1, "train", 7, lexicon)
    assert found[7] != utterance(2, "train", 7, lexicon)
    assert 10 <= min(one.above_noise for one in found) < max(one.above_noise for one in found) <= 30
    np.testing.assert_array_equal(speak(found[7]).samples, speak(found[7]).samples)


def test_words_are_loud_where_their_times_say():
    spoken = speak(Utterance(("seven", "nine", "one"), 3, 30.0, (9, 1)))
    times = np.arange(len(spoken.samples)) / RATE
    inside = np.zeros(len(times), bool)
    assert all(start < end for start, end in spoken.times)
    for start, end in spoken.times:
        inside |= (times >= start) & (times < end)
    loud = spoken.samples**2
    assert loud[inside].mean() > 20 * loud[~inside].mean()
    assert np.abs(spoken.samples).max() <= 0.7001


def test_noise_is_as_loud_as_it_is_told():
    quiet, noisy = (speak(Utterance(("one", "two", "three"), 5, level, (4, 2))) for level in (90.0, 10.0))
    scale = 0.7 / max(0.7, np.abs(noisy.samples).max())
    noise = noisy.samples / scale - quiet.samples
    ratio = 10 * np.log10((quiet.samples**2).mean() / (noise**2).mean())
    assert ratio == pytest.approx(10.0, abs=0.5)


def test_a_high_voice_has_higher_resonances_and_vowels_differ():
    def peak(word, voice):
        frames = log_mel(torch.from_numpy(speak(Utterance((word,), voice, 40.0, (1, 1))).samples), MelConfig())
        return frames[frames.sum(1).argmax() - 2 : frames.sum(1).argmax() + 3].mean(0)

    low, high = min(range(30), key=lambda v: VOICES[v].pitch), max(range(30), key=lambda v: VOICES[v].pitch)
    assert not torch.allclose(peak("two", low), peak("two", high), atol=0.5)
    assert not torch.allclose(peak("two", low), peak("four", low), atol=0.5)


def test_a_source_selects_and_tells_itself_apart():
    sounds = SpokenSounds.of(5, seed=3, part="valid")
    some = sounds.select([1, 4])
    assert some.names == ["valid-1", "valid-4"]
    assert some.texts[1] == sounds.texts[4]
    np.testing.assert_array_equal(some.samples(1, RATE), sounds.samples(4, RATE))
    assert len(some.samples(0, 8000)) == pytest.approx(len(some.samples(0, RATE)) / 2, abs=1)
    assert len({sounds.digest(), some.digest(), SpokenSounds.of(5, seed=3).digest()}) == 3
