# cython: language_level=3
"""Capture files through libpcap: pcap and pcapng of Ethernet frames in, pcap with nanoseconds out."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

import os


cdef extern from "capture.h" nogil:
    enum:
        CAPTURE_ERROR_SIZE

    struct capture_reader:
        pass
    struct capture_writer:
        pass

    capture_reader *capture_open(const char *path, char *error)
    void capture_close(capture_reader *reader)
    int capture_next(capture_reader *reader, const uint8_t **frame, uint32_t *captured, uint32_t *length,
                     uint64_t *nanoseconds, char *error)
    capture_writer *capture_create(const char *path, char *error)
    void capture_write(capture_writer *writer, const void *frame, uint32_t length, uint64_t nanoseconds)
    int capture_finish(capture_writer *writer)


class CaptureError(Exception):
    """A capture file cannot be read or written."""


cdef class CaptureReader:
    """Iterates (nanoseconds, frame) over a pcap or pcapng file of Ethernet frames."""

    cdef capture_reader *handle
    cdef str path

    def __cinit__(self, str path):
        cdef char error[CAPTURE_ERROR_SIZE]
        self.path = path
        self.handle = capture_open(os.fsencode(path), error)
        if self.handle == NULL:
            raise CaptureError(f"{path}: {error.decode(errors='replace').removeprefix(f'{path}: ')}")

    def __iter__(self):
        return self

    def __next__(self):
        cdef char error[CAPTURE_ERROR_SIZE]
        cdef const uint8_t *frame
        cdef uint32_t captured, length
        cdef uint64_t nanoseconds
        cdef int rc = capture_next(self.handle, &frame, &captured, &length, &nanoseconds, error)
        if rc == 0:
            raise StopIteration
        if rc < 0:
            raise CaptureError(f"{self.path}: {error.decode(errors='replace')}")
        if captured < length:
            raise CaptureError(f"{self.path}: a frame of {length} bytes was captured with {captured}; "
                               "capture with a snapshot length of 0 (all)")
        return nanoseconds, (<const char *>frame)[:captured]

    def __dealloc__(self):
        capture_close(self.handle)


cdef class CaptureWriter:
    """Writes frames to a pcap file with nanosecond timestamps."""

    cdef capture_writer *handle
    cdef str path

    def __cinit__(self, str path):
        cdef char error[CAPTURE_ERROR_SIZE]
        self.path = path
        self.handle = capture_create(os.fsencode(path), error)
        if self.handle == NULL:
            raise CaptureError(error.decode(errors="replace"))

    def write(self, uint64_t nanoseconds, bytes frame):
        """Append one frame."""
        capture_write(self.handle, <const char *>frame, len(frame), nanoseconds)

    def close(self):
        """Finish the file. Raises CaptureError when it did not reach the disk."""
        cdef capture_writer *handle = self.handle
        self.handle = NULL
        if handle != NULL and capture_finish(handle) != 0:
            raise CaptureError(f"{self.path}: not written completely")

    def __dealloc__(self):
        if self.handle != NULL:
            capture_finish(self.handle)
