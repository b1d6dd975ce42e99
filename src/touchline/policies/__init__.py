"""What acts: networks and distributions, ONNX in and out, checkpoints."""
