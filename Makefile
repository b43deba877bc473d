# make demo: train, use, measure and look at an English-French Transformer.   make test: everything that must hold.
PYTHON ?= python3
BIN := .venv/bin
RUN := runs/demo

.PHONY: demo test test-long test-numbers test-all-numbers docs-test docs-long test-pythons site reference lint types bench clean help

help:
	@echo "make demo   train a small English-French Transformer (about 4 minutes), translate, evaluate, look inside"
	@echo "make test   tests, lint, layers and types"
	@echo "make test-long  the tests that take minutes: bridges to Hugging Face at random, kills at every file operation, processes"
	@echo "make docs-test  the blocks of the documents and of the companion, with what they print"
	@echo "make docs-long  the same with every longer line and part, recorded in docs/results/documents.md"
	@echo "make test-pythons  the wheel with every Python that is installed, from 3.11 on"
	@echo "make site   the documents as a site, in build/site, with every link checked"
	@echo "make test-numbers  what hangs on the processor, with AVX2 alone and with no vector instructions"
	@echo "make bench  speed beside Hugging Face, in one run"
	@echo "make clean  remove the environment and the demo's run"

demo: .venv/.installed
	@echo "The demo's world is small: some hundred words of the bundled corpus. Its model says which words of a sentence it does not know."
	@if [ -e $(RUN) ] && ! [ -e $(RUN)/model.safetensors ]; then rm -rf $(RUN); fi
	@if [ -e $(RUN) ]; then $(BIN)/regard train --resume $(RUN); else $(BIN)/regard train --preset demo --out $(RUN); fi
	@echo; echo "Held-out sentences of the bundled corpus:"
	@$(BIN)/regard evaluate $(RUN)
	@echo; echo "The lectures' sentences, none of them seen in training:"
	@while read -r line; do echo "  $$line"; echo "  $$($(BIN)/regard translate $(RUN) "$$line")"; done < examples/lecture.en
	@echo; $(BIN)/regard look $(RUN) --input examples/lecture.en --out attention.html
	@echo "open attention.html in a browser to see where the model looked"

test: .venv/.developing lint types
	$(BIN)/pytest -n 2 --dist worksteal

test-long: .venv/.developing test-all-numbers
	$(BIN)/pytest -m long

# A Python that is not installed is said, and passed over.
PYTHONS ?= python3.11 python3.12 python3.13
test-pythons: .venv/.installed
	@for python in $(PYTHONS); do \
	  if $$python --version > /dev/null 2>&1; then PYTHON=$$python bash .ci/wheel || exit 1; else echo "$$python is not found; one that is elsewhere is given as PYTHONS=/path/to/python"; fi; \
	done

docs-test: .venv/.developing
	$(BIN)/pytest tests/docs

docs-long: .venv/.developing
	$(BIN)/pytest -n 2 --dist worksteal tests/docs -m "long or not long" --junitxml build/docs-long.xml
	$(BIN)/python tests/docs/record.py docs/results/documents.md build/docs-long.xml

# The processor's kernels are chosen by what it can do: the same tests with those of an older one, and of none.
OLDER := ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 ONEDNN_MAX_CPU_ISA=AVX2
PLAIN := ATEN_CPU_CAPABILITY=default
NUMBERS := $(BIN)/pytest -n 2 --dist worksteal
test-numbers: .venv/.developing
	$(OLDER) $(NUMBERS) -m kernels
	$(PLAIN) $(NUMBERS) -m kernels

test-all-numbers: .venv/.developing
	$(OLDER) $(NUMBERS) -m numbers
	$(PLAIN) $(NUMBERS) -m numbers

lint: .venv/.developing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/codespell *.md docs notebooks regard deploy examples benchmarks

# Documents, API reference and live pages in build/site; a link that leads nowhere is an error.
site: .venv/.developing
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The tables of docs/cli.md and docs/settings.md, from the code.
reference: .venv/.developing
	$(BIN)/python docs/reference.py

types: .venv/.developing
	$(BIN)/basedpyright --level error

bench: .venv/.developing
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/decoding.py

# torch comes first and by its exact version, so that nothing that wants it brings another.
.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "regard needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $$(grep '^torch==' constraints.txt)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	touch $@

.venv/.developing: .venv/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv $(RUN) attention.html
