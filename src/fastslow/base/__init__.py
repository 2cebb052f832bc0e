"""Small helpers that every room uses; they import no other room."""
