/* SPDX-License-Identifier: Apache-2.0
 *
 * disk.h: complete writes, lasting file names, and new folders.
 */
#ifndef KVG_RESULTS_DISK_H
#define KVG_RESULTS_DISK_H

#include <stddef.h>
#include <stdio.h>
#include "error.h"

/* Writes all `size` bytes. -1 with errno. */
int kvg_write_whole(int fd, const char *data, size_t size);
/* Flushes the folder that holds `path`, because a power cut may lose a new file name that is not flushed.
 * Errors are ignored: some file systems cannot flush folders. */
void kvg_sync_folder_of(const char *path);
/* Makes the folder and the missing folders above it, as mkdir -p does. */
int kvg_make_folders(const char *path, struct kvg_error *error);
/* 1 when both names lead to one existing file: the same inode of the same device, through links or not. */
int kvg_same_file(const char *a, const char *b);
/* 1 when the folders that hold the two files exist and are one folder. The files need not exist. */
int kvg_same_folder(const char *a, const char *b);
/* A new file for writing, such as a temporary one. An existing name, and so a symbolic link, is refused. NULL
 * with errno. */
FILE *kvg_create_file(const char *path);
/* HDF5 locks a file that it opens, and fails alike when another process has locked it and when the file system
 * has no locks. This tries the lock and tells: 0: it can be had; EWOULDBLOCK: another process has it; any other
 * errno: there are no locks. */
int kvg_lock_failure(const char *path);
/* May a command that reads `input` write a file to `output`? -1 with the error (exit code 4) when `output` is
 * `input`, is a journal, or exists and is of another kind than what will be written: an HDF5 file is
 * replaced by HDF5 only (`hdf5` is 1), and nothing but an HDF5 file or an empty file is replaced by HDF5. */
int kvg_check_output(const char *output, const char *input, int hdf5, struct kvg_error *error);
/* 1 when the file begins as an HDF5 file does, 0 when not or when it cannot be read. */
int kvg_begins_as_hdf5(const char *path);

#endif
