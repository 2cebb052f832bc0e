"""Help where a whole group failed (docs/rescue.md): what a recipe can ask for, who helps, what help does."""
