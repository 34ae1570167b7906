"""Files that hold tensors (HDF5, torch.save), archives of them, and the Hugging Face Hub."""
