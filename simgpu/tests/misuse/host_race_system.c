/* host_race_system.c: races with the host as in host_race.c, where the host is the system, which a
 * call hands the memory to: files, sockets, and streams of the C library.
 */
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "program.h"

// A file of its own, without a name, with N floats of 1 in it.
HELPER int new_file(void)
{
    char path[] = "checkpoint-XXXXXX";
    float one[N];
    int fd = mkstemp(path);
    for (int i = 0; i < N; i++) one[i] = 1;
    CHECK(fd >= 0 && unlink(path) == 0);
    CHECK(write(fd, one, sizeof one) == sizeof one && lseek(fd, 0, SEEK_SET) == 0);
    return fd;
}

#define BYTES (N * sizeof(float))
// N floats that arrive in pinned memory, and nobody has waited; the line is the copy's.
#define ARRIVING(host, stream)                                                                     \
    cudaStream_t stream = side_stream();                                                           \
    float *host = pinned(N, 0), *x = filled(N, 3)

// Every checkpoint writer's mistake.
WRONG(HOST_RACE, checkpoint_written_too_early, 1, "0")
{
    int fd = new_file();
    ARRIVING(host, stream);
    CUDA(cudaMemcpyAsync(host, x, BYTES, cudaMemcpyDeviceToHost, stream)); // HERE
    CHECK(write(fd, host, BYTES) == BYTES);                                // HERE
    close(fd);
}

WRONG(HOST_RACE, shard_written_at_its_offset_too_early, 1, "0")
{
    int fd = new_file();
    ARRIVING(host, stream);
    CUDA(cudaMemcpyAsync(host, x, BYTES, cudaMemcpyDeviceToHost, stream)); // HERE
    CHECK(pwrite(fd, host, BYTES, 100) == BYTES);                          // HERE
    close(fd);
}

WRONG(HOST_RACE, header_and_data_written_too_early, 1, "0")
{
    int fd = new_file(), header = N;
    ARRIVING(host, stream);
    struct iovec range[2] = {{&header, sizeof header}, {host, BYTES}};
    CUDA(cudaMemcpyAsync(host, x, BYTES, cudaMemcpyDeviceToHost, stream)); // HERE
    CHECK(writev(fd, range, 2) == sizeof header + BYTES);                  // HERE
    close(fd);
}

WRONG(HOST_RACE, stream_of_the_library_written_too_early, 1, "0")
{
    FILE *file = fdopen(new_file(), "w");
    ARRIVING(host, stream);
    CUDA(cudaMemcpyAsync(host, x, BYTES, cudaMemcpyDeviceToHost, stream)); // HERE
    CHECK(fwrite(host, sizeof *host, N, file) == N);                       // HERE
    fclose(file);
}

// A piece of a row, among rows that are not the copy's.
WRONG(HOST_RACE, column_written_too_early, 1, "0")
{
    int fd = new_file();
    ARRIVING(host, stream);
    CUDA(cudaMemcpy2DAsync(host, 400, x, 400, 40, 10, cudaMemcpyDeviceToHost, stream)); // HERE
    CHECK(write(fd, host + 250, 400) == 400);                                           // HERE
    close(fd);
}

WRONG(HOST_RACE, sent_too_early, 1, "0")
{
    int pair[2];
    new_pair(pair);
    ARRIVING(host, stream);
    CUDA(cudaMemcpyAsync(host, x, BYTES, cudaMemcpyDeviceToHost, stream)); // HERE
    CHECK(send(pair[0], host, BYTES, 0) == BYTES);                         // HERE
}

WRONG(HOST_RACE, sent_to_a_peer_too_early, 1, "0")
{
    int pair[2];
    new_pair(pair);
    ARRIVING(host, stream);
    CUDA(cudaMemcpyAsync(host, x, BYTES, cudaMemcpyDeviceToHost, stream)); // HERE
    CHECK(sendto(pair[0], host, BYTES, 0, NULL, 0) == BYTES);              // HERE
}

WRONG(HOST_RACE, message_sent_too_early, 1, "0")
{
    int pair[2];
    new_pair(pair);
    ARRIVING(host, stream);
    struct iovec range = {host, BYTES};
    struct msghdr message = {.msg_iov = &range, .msg_iovlen = 1};
    CUDA(cudaMemcpyAsync(host, x, BYTES, cudaMemcpyDeviceToHost, stream)); // HERE
    CHECK(sendmsg(pair[0], &message, 0) == BYTES);                         // HERE
}

// The next batch comes from a file, and the copy of the last one has not taken it yet.
WRONG(HOST_RACE, next_batch_from_a_file_too_early, 1, "0")
{
    int fd = new_file();
    ARRIVING(batch, stream);
    CUDA(cudaMemcpyAsync(x, batch, BYTES, cudaMemcpyHostToDevice, stream)); // HERE
    CHECK(read(fd, batch, BYTES) == BYTES);                                 // HERE
    CHECK(batch[N - 1] == 1);
    close(fd);
}

WRONG(HOST_RACE, next_batch_from_an_offset_too_early, 1, "0")
{
    int fd = new_file();
    ARRIVING(batch, stream);
    CUDA(cudaMemcpyAsync(x, batch, BYTES, cudaMemcpyHostToDevice, stream)); // HERE
    CHECK(pread(fd, batch, BYTES, 0) == BYTES);                             // HERE
    close(fd);
}

WRONG(HOST_RACE, next_batch_from_the_library_too_early, 1, "0")
{
    FILE *file = fdopen(new_file(), "r");
    ARRIVING(batch, stream);
    CUDA(cudaMemcpyAsync(x, batch, BYTES, cudaMemcpyHostToDevice, stream)); // HERE
    CHECK(fread(batch, sizeof *batch, N, file) == N);                       // HERE
    fclose(file);
}

WRONG(HOST_RACE, next_batch_received_too_early, 1, "0")
{
    int pair[2];
    float one[N] = {1};
    new_pair(pair);
    CHECK(send(pair[0], one, sizeof one, 0) == sizeof one);
    ARRIVING(batch, stream);
    CUDA(cudaMemcpyAsync(x, batch, BYTES, cudaMemcpyHostToDevice, stream)); // HERE
    CHECK(recv(pair[1], batch, BYTES, 0) == BYTES);                         // HERE
}

// Every call behind its wait, on memory that was in use a moment ago.
RIGHT(HOST_RACE, files_and_sockets_behind_the_wait, 1)
{
    int fd = new_file(), pair[2];
    FILE *file = fdopen(new_file(), "r+");
    new_pair(pair);
    ARRIVING(host, stream);
    struct iovec range = {host, BYTES};
    struct msghdr message = {.msg_iov = &range, .msg_iovlen = 1};
    for (int call = 0; call < 11; call++) {
        int reads = call > 6;
        if (reads)
            CUDA(cudaMemcpyAsync(x, host, BYTES, cudaMemcpyHostToDevice, stream));
        else
            CUDA(cudaMemcpyAsync(host, x, BYTES, cudaMemcpyDeviceToHost, stream));
        CUDA(cudaStreamSynchronize(stream));
        lseek(fd, 0, SEEK_SET);
        rewind(file);
        ssize_t done = 0;
        switch (call) {
        case 0: done = write(fd, host, BYTES); break;
        case 1: done = pwrite(fd, host, BYTES, 0); break;
        case 2: done = writev(fd, &range, 1); break;
        case 3: done = (ssize_t)(fwrite(host, 1, BYTES, file)); break;
        case 4: done = send(pair[0], host, BYTES, 0); break;
        case 5: done = sendto(pair[0], host, BYTES, 0, NULL, 0); break;
        case 6: done = sendmsg(pair[0], &message, 0); break;
        case 7: done = read(fd, host, BYTES); break;
        case 8: done = pread(fd, host, BYTES, 0); break;
        case 9: done = (ssize_t)(fread(host, 1, BYTES, file)); break;
        case 10: done = recv(pair[1], host, BYTES, MSG_WAITALL); break;
        }
        CHECK(done == BYTES);
        for (int i = 0; i < N; i++) CHECK(host[i] == 3);
    }
    fclose(file);
    close(fd);
}

// A message is shorter than the room for it, in which a copy arrives behind it.
RIGHT(HOST_RACE, short_message_in_front_of_a_copy, 1)
{
    int pair[2];
    float one[10];
    new_pair(pair);
    for (int i = 0; i < 10; i++) one[i] = 1;
    ARRIVING(host, stream);
    for (int step = 0; step < 3; step++) {
        CHECK(send(pair[0], one, sizeof one, 0) == sizeof one);
        CUDA(cudaMemcpyAsync(host + 10, x, 400, cudaMemcpyDeviceToHost, stream));
        CHECK(recv(pair[1], host, BYTES, 0) == sizeof one);
        CUDA(cudaStreamSynchronize(stream));
        CHECK(host[9] == 1 && host[10] == 3 && host[109] == 3 && host[110] == 0);
    }
}

// What a copy reads may be written to a file meanwhile.
RIGHT(HOST_RACE, weights_saved_while_they_are_copied, 1)
{
    int fd = new_file();
    ARRIVING(host, stream);
    CUDA(cudaMemcpyAsync(x, host, BYTES, cudaMemcpyHostToDevice, stream));
    CHECK(write(fd, host, BYTES) == BYTES);
    close(fd);
    expect(x, N, 0);
}

// The rows of a copy, and the bytes between them, which the host has.
RIGHT(HOST_RACE, bytes_between_the_rows, 1)
{
    int fd = new_file();
    ARRIVING(host, stream);
    CUDA(cudaMemcpy2DAsync(host, 400, x, 400, 40, 10, cudaMemcpyDeviceToHost, stream));
    CHECK(write(fd, host + 10, 360) == 360);
    CHECK(pread(fd, host + 110, 360, 0) == 360);
    close(fd);
}
