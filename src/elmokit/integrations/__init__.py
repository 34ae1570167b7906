"""elmokit inside other libraries, one module for each; none is imported by `import elmokit`."""
