"""POST /v1/caption: the same as from Python, of images that are sent, and none of the server's own files."""

import pytest
from serve_toys import dropping, serving

import regard
from regard import make_config
from regard.data.synthetic.scenes import draw, scene
from regard.look.packed_arrays import png_address, png_bytes
from regard.serve.limits import Limits

pytest.importorskip("PIL.Image")

SMALL = [
    *("data.scenes=20", "train.steps=2", "train.warmup=1", "train.batch_tokens=700", "train.threads=1"),
    *("model.width=8", "model.heads=2", "model.feed_forward=8", "train.validate_every=2", "decode.max_len=12"),
    "train.validate_sentences=2",
]


@pytest.fixture(scope="module")
def captioner(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.tasks.captioning.SCENES_HELD_OUT", 4)
        made = make_config(None, "caption-tiny", SMALL)
        return regard.train(made, tmp_path_factory.mktemp("runs") / "scenes")


def test_images_that_are_sent_are_captioned_and_paths_are_not_opened(captioner, tmp_path):
    images = [draw(scene(0, "test", number)) for number in range(2)]
    (tmp_path / "one.png").write_bytes(png_bytes(images[0]))
    with serving(captioner) as client:
        several = client.post("/v1/caption", {"image": [png_address(one) for one in images], "beam": 2})
        path = client.post("/v1/caption", {"image": str(tmp_path / "one.png")})
        cut = client.post("/v1/caption", {"image": png_address(images[0])[:302]})
        listed = client.get("/v1/models").json["data"][0]["does"]
    assert several.status == 200, several.text
    texts = [one["captions"][0]["text"] for one in several.json["results"]]
    assert texts == captioner.caption(images, beam=2)
    assert path.status == 422
    assert "is not base64" in path.json["error"]["message"]
    assert cut.status == 422
    assert "cannot be read as an image" in cut.json["error"]["message"]
    assert "caption" in listed


def test_where_it_looked_is_shown_of_an_image_that_was_sent_and_of_nothing_else(captioner, tmp_path):
    image = draw(scene(0, "test", 0))
    (tmp_path / "one.png").write_bytes(png_bytes(image))
    with serving(captioner) as client:
        looked = client.post("/v1/look", {"text": png_address(image), "target": "a red circle"})
        refused = client.error("/v1/look", {"text": str(tmp_path / "one.png")}, 422)[1]
        page = client.get(looked.json["url"])
    assert looked.status == 200, looked.text
    sentence = looked.json["document"]["sentences"][0]
    assert sentence["target"]["text"] == "a red circle"
    assert sentence["picture"]["image"] == png_address(image)
    assert page.status == 200
    assert "is not base64" in refused


def test_the_page_takes_files_of_a_kind_and_size_that_it_knows(captioner):
    with serving(captioner, limits=Limits(body=5000)) as client:
        front = client.get("/")
    assert 'data-most="5000"' in front.text
    assert "img-src data:" in front.headers["content-security-policy"]


def test_an_image_that_is_dropped_on_the_page_is_shown_and_captioned_and_others_are_refused(captioner, browser):
    image = draw(scene(0, "test", 1))
    with serving(captioner, limits=Limits(body=40_000, grace=1.0)) as client:
        page = browser.page(f"http://127.0.0.1:{client.port}/")
        page.wait("document.querySelector('#task').value === 'caption'")
        assert page.js("document.querySelector('#text-label').hidden")
        page.js(dropping(png_bytes(image), "one.png", "image/png"))
        page.wait("document.querySelector('#answer td') !== null")
        assert page.texts("#answer td")[0] == captioner.caption([image])[0]
        assert page.js("document.querySelector('#preview').src") == png_address(image)
        page.click("#look")
        page.wait("document.querySelector('#seen a') !== null")
        page.js(dropping(b"no", "notes.txt", "text/plain"))
        page.wait("document.querySelector('#problem').textContent === 'notes.txt is no image but text/plain'")
        page.js(dropping(bytes(50_000), "wide.png", "image/png"))
        page.wait("document.querySelector('#problem').textContent.startsWith('wide.png has 50,000 bytes')")
        page.js(dropping(png_bytes(image)[:300], "cut.png", "image/png"))
        page.wait("document.querySelector('#problem').textContent.includes('cannot be read as an image')")
        page.close()
