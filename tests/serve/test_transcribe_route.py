"""POST /v1/transcribe: the same as from Python, of sounds that are sent, and none of the server's own files."""

import base64
import threading

import numpy as np
import pytest
from serve_toys import dropping, hold, serving, until

import regard
from regard import make_config
from regard.data.audio import write_wav
from regard.data.synthetic.speech import RATE, speak, utterance
from regard.serve.limits import Limits

SMALL = [
    *("data.speech=8", "train.steps=2", "train.warmup=1", "train.batch_tokens=700", "train.threads=1"),
    *("model.width=8", "model.heads=2", "model.feed_forward=8", "model.bands=8", "train.validate_every=2"),
    *("decode.max_len=12", "train.validate_sentences=2"),
]


@pytest.fixture(scope="module")
def transcriber(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.tasks.transcribing.SPEECH_HELD_OUT", 3)
        made = make_config(None, "speech-tiny", SMALL)
        return regard.train(made, tmp_path_factory.mktemp("runs") / "digits")


def test_sounds_that_are_sent_are_transcribed_and_paths_are_not_opened(transcriber, tmp_path):
    files = [write_wav(speak(utterance(0, "test", number)).samples, RATE) for number in range(2)]
    for number, data in enumerate(files):
        (tmp_path / f"{number}.wav").write_bytes(data)
    sent = [base64.b64encode(data).decode() for data in files]
    with serving(transcriber) as client:
        several = client.post("/v1/transcribe", {"sound": sent, "beam": 2})
        path = client.post("/v1/transcribe", {"sound": str(tmp_path / "0.wav")})
        cut = client.post("/v1/transcribe", {"sound": base64.b64encode(files[0][:300]).decode()})
        looked = client.post("/v1/look", {"text": sent[0], "target": "one two"})
        listed = client.get("/v1/models").json["data"][0]["does"]
    assert several.status == 200, several.text
    results = several.json["results"]
    assert [one["transcripts"][0]["text"] for one in results] == transcriber.transcribe(
        [tmp_path / "0.wav", tmp_path / "1.wav"], beam=2
    )
    assert results[0]["seconds"] == pytest.approx((len(files[0]) - 44) / 2 / RATE, abs=1e-3)
    assert path.status == cut.status == 422
    assert "is not base64" in path.json["error"]["message"]
    assert "is cut" in cut.json["error"]["message"]
    assert {"transcribe", "look"} <= set(listed)
    assert looked.status == 200, looked.text
    assert looked.json["document"]["sentences"][0]["sound"]["seconds"] == pytest.approx(results[0]["seconds"], abs=1e-3)


def test_a_minute_of_sound_is_taken_unless_the_server_is_told_otherwise(transcriber):
    minute = np.tile(speak(utterance(0, "test", 0)).samples, 60)[: 60 * RATE]
    body = {"sound": base64.b64encode(write_wav(minute, RATE)).decode()}
    with serving(transcriber) as client:
        assert client.app.state.models.limits.body == 26 << 20
        answered = client.post("/v1/transcribe", body)
    assert answered.status == 200, answered.text
    assert answered.json["results"][0]["seconds"] == 60
    with serving(transcriber, limits=Limits(body=1 << 20)) as client:
        assert "more than 1,048,576 bytes" in client.error("/v1/transcribe", body, 413)[1]


def test_a_large_request_takes_the_place_of_several(transcriber):
    minute = base64.b64encode(write_wav(np.zeros(60 * RATE, np.float32), RATE)).decode()
    with serving(transcriber, limits=Limits(queue=3, grace=1.0)) as client:
        held, queue = hold(client, "digits"), client.models["digits"].worker.queue
        assert held.begun.wait(60)
        asking = threading.Thread(target=client.post, args=("/v1/transcribe", {"sound": minute}))
        asking.start()
        until(lambda: len(queue) == 1)
        assert queue.room() == 0  # 2.5 of 3 mebibytes
        assert client.error("/v1/transcribe", {"sound": "AA=="}, 503)[0] == "busy"
        held.go.set()
        asking.join()
        assert queue.room() == 3


def test_a_sound_that_is_dropped_on_the_page_is_transcribed_and_others_are_refused(transcriber, browser, tmp_path):
    data = write_wav(speak(utterance(0, "test", 1)).samples, RATE)
    (tmp_path / "one.wav").write_bytes(data)
    with serving(transcriber, limits=Limits(body=2 * len(data), grace=1.0)) as client:
        page = browser.page(f"http://127.0.0.1:{client.port}/")
        page.wait("document.querySelector('#task').value === 'transcribe'")
        assert page.js("document.querySelector('#file-name').textContent") == "A sound: choose one, or drop it here"
        page.js(dropping(data, "one.wav", "audio/wav"))
        page.wait("document.querySelector('#answer td') !== null")
        assert page.texts("#answer td")[0] == transcriber.transcribe([tmp_path / "one.wav"])[0]
        assert page.js("document.querySelector('#preview').hidden"), "a sound is no picture"
        page.click("#look")
        page.wait("document.querySelector('#seen a') !== null")
        page.js(dropping(b"no", "one.png", "image/png"))
        page.wait("document.querySelector('#problem').textContent === 'one.png is no audio but image/png'")
        page.js(dropping(bytes(2 * len(data)), "long.wav", "audio/wav"))
        page.wait("document.querySelector('#problem').textContent.startsWith('long.wav has ')")
        page.js(dropping(data[:300], "cut.wav", "audio/wav"))
        page.wait("document.querySelector('#problem').textContent.includes('is cut')")
        page.close()
