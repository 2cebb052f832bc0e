"""The board: a page over run folders, live while they train (`fastslow board`).

places.py finds run folders and guards what may be read; logs.py follows files that grow; overview.py, curves.py, text.py and
rollouts.py read what a view shows; watch.py notices changes; server.py serves it over HTTP; page.py and snapshot.py write it
as one file; static/ is the page itself. Nothing here writes to a run folder or imports torch.
"""
