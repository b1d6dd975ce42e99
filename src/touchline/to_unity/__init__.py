"""Policies of other libraries as the ONNX file that Unity loads: one file for each library."""
