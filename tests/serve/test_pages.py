"""Where a model looked, by request; and the page at `/`: in one piece, loading nothing from elsewhere."""

import json
import re

import pytest
from serve_toys import SENTENCES, near, serving

from regard.look.document import Document
from regard.look.watch import attentions
from regard.serve import pages as kept
from regard.serve.pages import Pages
from regard.tasks.looking import document


@pytest.fixture(scope="module")
def server(translator, writer, encoders, pointer):
    with serving({"toy": translator, "words": writer, "classes": encoders["classes"], "sort": pointer}) as client:
        yield client


@pytest.mark.parametrize(
    ("model", "text"),
    [("toy", SENTENCES[0]), ("words", "sun moon"), ("classes", "the cat was good."), ("sort", [0.3, 0.1, 0.2])],
)
def test_where_a_model_looked_is_the_viewers_document_and_its_page(server, model, text):
    answer = server.post("/v1/look", {"model": model, "text": text})
    assert answer.status == 200, answer.text
    served = server.models[model].run
    found = json.loads(json.dumps(document(served, [text]).to_mapping(packed=False)))
    assert near(answer.json["document"], {**found, "title": "Where the model looked"})
    Document.from_mapping(answer.json["document"])
    page = server.get(answer.json["url"])
    assert page.status == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "Where the model looked" in page.text
    assert str(served.directory.parent) not in page.text
    assert not re.search(r"""(?:src|href)\s*=\s*["'](?!data:|#)""", page.text)


def test_looking_takes_the_options_of_the_command(server):
    asked = {"model": "toy", "text": SENTENCES[0], "beam": 2, "layers": ["decoder.*"], "heads": [1], "target": "A DOG"}
    found = server.post("/v1/look", asked).json["document"]["sentences"][0]
    assert found["target"]["text"] == "A DOG"
    assert all(one["name"].startswith("decoder.") and one["heads"] == [1] for one in found["attentions"])
    assert "document" not in server.post("/v1/look", {**asked, "document": False}).json
    for change, status, said in [
        ({"layers": ["encodr"]}, 400, "no attention is called 'encodr'"),
        ({"heads": [-1]}, 400, "heads"),
        ({"heads": [7]}, 400, "7"),
        ({"text": " "}, 422, "nothing to look at"),
        ({"text": ["a", "b"]}, 400, "text must be one text"),
        ({"text": "cat " * 300}, 422, "this server looks into 256"),
    ]:
        assert said in server.error("/v1/look", {**asked, **change}, status)[1]


def test_a_mounted_application_knows_its_place(translator):
    with serving(translator, mounted="/models", api_keys=["key"]) as client:
        assert client.get("/models/health").status == client.get("/models/").status == 200
        assert client.get("/health").status == 404
        assert client.post("/models/v1/translate", {"text": SENTENCES[0]}).status == 401
        key = {"Authorization": "Bearer key"}
        found = client.post("/models/v1/look", {"text": SENTENCES[0], "document": False}, **key).json
        assert found["url"].startswith("/models/look/")
        assert client.get(found["url"]).status == 200
        assert 'route="/v1/look",status="200"' in client.get("/models/metrics", **key).text


def test_looking_leaves_the_model_as_it_was(server):
    before = server.post("/v1/translate", {"text": SENTENCES}).json
    server.post("/v1/look", {"model": "toy", "text": SENTENCES[0]})
    assert near(server.post("/v1/translate", {"text": SENTENCES}).json, before)
    assert all(one.watcher is None for one in attentions(server.models["toy"].run.model).values())


def test_pages_are_kept_for_a_while_and_not_for_ever(monkeypatch, server):
    pages = Pages()
    names = [pages.keep(f"page {number}") for number in range(40)]
    assert len(pages) == 32
    assert pages.get(names[0]) is None
    assert pages.get(names[-1]) == b"page 39"
    assert len(set(names)) == 40
    assert all(len(name) >= 20 for name in names)
    pages.keep("x" * kept.MOST_BYTES)
    assert len(pages) == 1
    monkeypatch.setattr(kept, "SECONDS", -1)
    assert pages.get(pages.keep("late")) is None
    assert server.get("/look/nothing").status == 404


def test_the_page_is_one_piece_and_runs_only_what_it_brings(server):
    page = server.get("/")
    assert page.status == 200
    assert not re.search(r"""(?:src|href|action)\s*=\s*["']""", page.text)
    assert not re.search(r"https?://|//[a-z]|@import|url\(", page.text.replace("// The page", ""))
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "connect-src 'self'" in policy
    assert "unsafe" not in policy
    for control in re.findall(r"<(?:input|textarea|select)[^>]*>", page.text):
        name = re.search(r'id="([^"]+)"', control)[1]
        assert re.search(rf'<label[^>]*>(?:(?!</label>).)*id="{name}"', page.text), f"{name} has no label"


def test_the_page_works_in_a_browser_from_the_keyboard(server, browser):
    page = browser.page(f"http://127.0.0.1:{server.port}/")
    page.wait("document.querySelector('#model').options.length === 4")
    hidden = "['key', 'question', 'stop'].every((id) => document.getElementById(id).offsetParent === null)"
    assert page.js(hidden), "what is not needed is not shown"
    whole = server.post("/v1/translate", {"text": SENTENCES[0]}).json["results"][0]["translations"][0]["text"]
    page.js(
        f"document.querySelector('#text').value = {json.dumps(SENTENCES[0])}; document.querySelector('#text').focus()"
    )
    page.js(
        "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', "
        "{ key: 'Enter', ctrlKey: true, bubbles: true }))"
    )
    page.wait(f"document.querySelector('#answer').textContent.startsWith({json.dumps(whole)})")
    page.js("document.querySelector('#look').click()")
    page.wait("document.querySelector('#seen a') !== null")
    link = page.js("document.activeElement.href")
    # What is looked into is what was answered, by whatever settings.
    longer = '{"min_len": 3, "beam": 2}'
    page.js(f"document.querySelector('#settings').value = {json.dumps(longer)}; document.querySelector('#go').click()")
    other = server.post("/v1/translate", {"text": SENTENCES[0], "min_len": 3, "beam": 2}).json
    other = other["results"][0]["translations"][0]["text"]
    assert other != whole
    page.wait(f"document.querySelector('#answer').textContent.startsWith({json.dumps(other)})")
    page.js("document.querySelector('#look').click()")
    page.wait(f"(document.querySelector('#seen a') || {{href: {json.dumps(link)}}}).href !== {json.dumps(link)}")
    seen = server.get(page.js("document.querySelector('#seen a').href").partition(str(server.port))[2]).text
    assert json.dumps(other, ensure_ascii=False)[1:-1] in seen
    page.js("document.querySelector('#settings').value = '{beam'; document.querySelector('#go').click()")
    page.wait("document.querySelector('#problem').textContent.startsWith('Settings must be JSON, such as {')")
    page.choose("#model", "sort")
    page.js("document.querySelector('#settings').value = ''; document.querySelector('#text').value = '[3,'")
    for button in ("#go", "#look"):
        page.js(f"document.querySelector('#problem').textContent = ''; document.querySelector('{button}').click()")
        page.wait("document.querySelector('#problem').textContent.startsWith('The problem must be JSON, such as [')")
    page.choose("#model", "words")
    page.js(
        "document.querySelector('#text').value = 'sun';"
        "document.querySelector('#settings').value = '{\"temperature\": 0}'; document.querySelector('#go').click()"
    )
    text = server.post("/v1/generate", {"prompt": "sun", "temperature": 0}).json["results"][0]["text"]
    page.wait(f"document.querySelector('#answer').textContent === {json.dumps('sun' + text)}")
    page.js("document.querySelector('#settings').value = '{\"beem\": 0}'; document.querySelector('#go').click()")
    page.wait("document.querySelector('#problem').textContent.includes(\"did you mean 'beam'\")")
    viewer = browser.page(link)
    viewer.wait("document.querySelector('#page').children.length > 0")
    assert viewer.complaints() == viewer.requests() == []
    # A refused request is all that the browser complains of, and the server itself all that was asked.
    assert [one.get("text", one)[-16:] for one in page.complaints()] == ["400 (Bad Request)"[-16:]]
    assert all(url.startswith(page.address) for url in page.requests())
