"""Ways to approximate −∇log q: a trained witness, a kernel, or noise; and their extensions."""
