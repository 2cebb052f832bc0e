"""The board: a page over run folders, live while they train (`fastslow board`).

curves.py, text.py and index.py make what a view shows, and views.py offers it as JSON; server.py is HTTP; page.py is the
page, and static/ holds its parts. runs/reading.py finds the folders and guards what may be read. Nothing here writes to a run
folder or imports torch.
"""
