// A closed loop over connections that are open already, each with one request in flight.
//   secured_load SECONDS TLS ERROR_AT BYTES_MIN REQUEST_FILE FD...
// TLS is 1 or 0. The file holds one request frame, which is sent again and again. An answer has at least BYTES_MIN
// bytes, and 0 in the two bytes at ERROR_AT (counted from the frame's length). The requests of the handshake are not
// measured. Build it with -lssl -lcrypto.
#include <errno.h>
#include <fcntl.h>
#include <openssl/ssl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SAMPLES_MAX 20000000
#define PIECE (1 << 17)

typedef struct {
  int fd;
  SSL *tls;
  double sent_s;
  uint8_t head[64];
  uint32_t got, size;
} Connection;

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static void fail(const char *what) {
  printf("%s: %s\n", what, strerror(errno));
  exit(1);
}

static void send_request(Connection *c, const uint8_t *request, int size) {
  c->sent_s = now_s();
  for (int done = 0; done < size;) {
    int n = c->tls ? SSL_write(c->tls, request + done, size - done) : (int)write(c->fd, request + done, size - done);
    if (n > 0)
      done += n;
    else if (!(c->tls ? SSL_get_error(c->tls, n) == SSL_ERROR_WANT_WRITE : errno == EAGAIN))
      fail("send");
  }
}

// Read what is there. Returns 1 when the answer is whole.
static int receive(Connection *c, uint8_t *piece, uint32_t error_at, uint32_t bytes_min) {
  for (;;) {
    int n = c->tls ? SSL_read(c->tls, piece, PIECE) : (int)read(c->fd, piece, PIECE);
    if (n <= 0) {
      if (c->tls ? SSL_get_error(c->tls, n) == SSL_ERROR_WANT_READ : n < 0 && errno == EAGAIN) return 0;
      fail("closed");
    }
    if (c->got < sizeof c->head) {
      uint32_t more = sizeof c->head - c->got;
      memcpy(c->head + c->got, piece, more < (uint32_t)n ? more : (uint32_t)n);
    }
    c->got += n;
    if (c->got >= 4 && !c->size)
      c->size = 4 + ((uint32_t)c->head[0] << 24 | c->head[1] << 16 | c->head[2] << 8 | c->head[3]);
    if (!c->size || c->got < c->size) continue;
    if (c->got > c->size || c->size < bytes_min || c->head[error_at] || c->head[error_at + 1]) {
      printf("an answer of %u bytes with error code %d\n", c->size, c->head[error_at] << 8 | c->head[error_at + 1]);
      exit(3);
    }
    c->got = c->size = 0;
    return 1;
  }
}

int main(int count, char **words) {
  double seconds = atof(words[1]);
  int secured = atoi(words[2]), connections = count - 6, request_size;
  uint32_t error_at = atoi(words[3]), bytes_min = atoi(words[4]);
  uint8_t *request = malloc(1 << 21), *piece = malloc(PIECE);
  FILE *file = fopen(words[5], "rb");
  if (!file || (request_size = (int)fread(request, 1, 1 << 21, file)) <= 0) fail(words[5]);
  SSL_CTX *context = secured ? SSL_CTX_new(TLS_client_method()) : NULL;
  Connection *all = calloc(connections, sizeof *all);
  int poll = epoll_create1(0);
  for (int i = 0; i < connections; i++) {
    all[i].fd = atoi(words[6 + i]);
    int flags = fcntl(all[i].fd, F_GETFL);
    fcntl(all[i].fd, F_SETFL, flags & ~O_NONBLOCK);
    if (secured) {
      all[i].tls = SSL_new(context);
      SSL_set_fd(all[i].tls, all[i].fd);
      if (SSL_connect(all[i].tls) != 1) fail("TLS handshake");
    }
    fcntl(all[i].fd, F_SETFL, flags | O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
    epoll_ctl(poll, EPOLL_CTL_ADD, all[i].fd, &event);
  }
  double *latencies = malloc(sizeof(double) * SAMPLES_MAX), began_s = now_s(), last_s = began_s;
  long done = 0;
  for (int i = 0; i < connections; i++) send_request(all + i, request, request_size);
  struct epoll_event events[256];
  while ((last_s = now_s()) - began_s < seconds) {
    int ready = epoll_wait(poll, events, 256, 1000);
    for (int j = 0; j < ready; j++) {
      Connection *c = all + events[j].data.u32;
      if (!receive(c, piece, error_at, bytes_min)) continue;
      if (done < SAMPLES_MAX) latencies[done++] = now_s() - c->sent_s;
      send_request(c, request, request_size);
    }
  }
  if (!done) fail("no answer");
  double took_s = last_s - began_s;
  qsort(latencies, done, sizeof *latencies, ascending);
  printf("req/s=%.0f MB/s=%.1f p50=%.1fus p99=%.1fus p99.9=%.1fus\n", done / took_s, done / took_s * request_size / 1e6,
         latencies[done / 2] * 1e6, latencies[(long)(done * .99)] * 1e6, latencies[(long)(done * .999)] * 1e6);
  return 0;
}
