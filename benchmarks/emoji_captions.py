"""Images of emoji with their names as captions, for `regard train --preset caption-tiny`.

    python benchmarks/emoji_captions.py scratch/emoji
    regard train --preset caption-tiny --data scratch/emoji --out runs/emoji
    regard evaluate runs/emoji

The images are those of the npm package `emoji-datasource-twitter` (MIT, (c) 2013 Cal Henderson), made from Twemoji,
whose graphics are under CC BY 4.0 ((c) Twitter, Inc. and other contributors): whoever shows them names them. `npm` (or
a tarball that it has packed, given as a second argument) brings them; nothing of them is part of this project.

An emoji's captions are its name and, where they differ, its short names; a skin tone is said after them. Of the images
a tenth is held out for the test and a twentieth for validation, by a digest of their names: an emoji in one tone may be
held out while it is trained on in others, and an emoji that has none is then one that was never seen.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PACKAGE = "emoji-datasource-twitter@16.0.0"
TONES = {"1F3FB": "light", "1F3FC": "medium-light", "1F3FD": "medium", "1F3FE": "medium-dark", "1F3FF": "dark"}


def main(directory: str, tarball: str | None = None) -> None:
    folder = Path(directory)
    (folder / "images").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as aside:
        packed = Path(tarball) if tarball else _pack(aside)
        with tarfile.open(packed) as archive:
            described = json.loads(_read(archive, "package/emoji.json"))
            captions = {image: said for emoji in described for image, said in _captions(emoji).items()}
            for image in captions:
                (folder / "images" / image).write_bytes(_read(archive, f"package/img/twitter/64/{image}"))
            (folder / "LICENSE").write_bytes(_read(archive, "package/LICENSE"))
    rows: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    for image, said in captions.items():
        part = int(hashlib.sha256(image.encode()).hexdigest(), 16) % 100
        side = "test" if part < 10 else "valid" if part < 15 else "train"
        rows[side] += [f"images/{image}\t{caption}\n" for caption in said]
    for side, lines in rows.items():
        (folder / f"{side}.tsv").write_text("image\tcaption\n" + "".join(lines), encoding="utf-8")
        print(f"{side}: {len({line.split()[0] for line in lines}):,} images, {len(lines):,} captions")
    print("the graphics are Twemoji's, CC BY 4.0: https://github.com/jdecked/twemoji")


def _pack(aside: str) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        sys.exit("npm is not here: install it, or give the path of a tarball of the package")
    command = [npm, "pack", PACKAGE, "--silent", "--pack-destination", aside]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return next(Path(aside).glob("*.tgz"))


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    found = archive.extractfile(name)
    assert found is not None, f"{name} is no file of the package"
    return found.read()


def _captions(emoji: dict) -> dict[str, list[str]]:
    """The images of an emoji, in every tone that has one, and what each is called."""
    if not emoji["has_img_twitter"]:
        return {}
    names = [emoji["name"] or "", *emoji["short_names"]]
    plain = list(dict.fromkeys(name.lower().replace("_", " ") for name in names if name))
    found = {emoji["image"]: plain}
    for tones, one in emoji.get("skin_variations", {}).items():
        if one["has_img_twitter"]:
            said = " and ".join(dict.fromkeys(TONES[tone] for tone in tones.split("-")))
            found[one["image"]] = [f"{name} with {said} skin" for name in plain]
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
