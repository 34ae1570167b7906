"""Find the uses of words that are nearest to a word in a sentence."""
