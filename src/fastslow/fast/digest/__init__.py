"""Reading every graded rollout: what the grader said about which problems, and what each line of a text is worth."""
