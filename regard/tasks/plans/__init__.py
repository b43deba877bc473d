"""What each kind of data is recognised by, and how a run on it is planned. Recipes are those of docs/results.md."""
