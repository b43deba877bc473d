"""Plot pruning.svg: BLEU on Multi30k as encoder heads are removed by learnt gates; the figures are those of results.md.

python docs/images/pruning.py
"""

from pathlib import Path

from regard.look.charts import Chart, Series, plot

BLEU = {0: (40.68, 39.08, 42.30), 30: (40.37, 38.79, 42.04), 38: (40.10, 38.40, 41.76)}
"""By how many of 48 heads are gone: the score, and the ends of its interval."""


def main() -> None:
    names = ("BLEU", "95 %, from", "95 %, to")
    chart = Chart(
        title="Multi30k, test 2016: encoder heads removed by learnt gates",
        x="heads removed, of 48",
        y="BLEU",
        series=[
            Series(name=name, points=[(gone, scores[place]) for gone, scores in BLEU.items()])
            for place, name in enumerate(names)
        ],
        low=36,
        high=44,
    )
    path = Path(__file__).with_name("pruning.svg")
    path.write_text(plot(chart, alone=True), encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
