"""The board: a page over run folders, live while they train (`fastslow board`).

places.py finds run folders and guards what may be read; logs.py follows files that grow; overview.py, curves.py, text.py,
rules.py, solved.py, rollouts.py and conversation.py read what a view shows, and views.py offers it as JSON; watch.py notices
changes; server.py is HTTP; page.py and snapshot.py are the page, and static/ holds its parts. Nothing here writes to a run
folder or imports torch.
"""
