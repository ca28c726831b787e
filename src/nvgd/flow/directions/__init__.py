"""Ways to stand in for −∇log q: a trained witness, a kernel, or noise; and their extensions."""
