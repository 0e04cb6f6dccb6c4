"""Models that are learnt from runs of a slow simulator: its runs, what is learnt from them, and how far off that is."""
