"""The facts of a version, collected once, and what shows them: report, dataset card, previews and notebooks."""
