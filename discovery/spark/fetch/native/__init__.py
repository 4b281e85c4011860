"""The fast engine: librdkafka's public C API by ctypes, and a compiled kernel that fills Arrow's buffers."""
