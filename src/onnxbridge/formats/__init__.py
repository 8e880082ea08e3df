"""Readers and writers of file formats, without the frameworks that the formats belong to."""
