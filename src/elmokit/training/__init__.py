"""What pretraining and task training share."""
