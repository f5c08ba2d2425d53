/* One operation, N times: `loops NAME COUNT`. What it does is counted by the caller. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096L
#define PAGES 256L /* of tree.tar and of a mapping that is touched */
#define FILE_NAME "tree/d0/f0.txt"
#define FOR for (long i = 0; i < n; i++)

static char buffer[PAGE];
static volatile char seen;

static void must(int right, const char *what) {
    if (!right) { perror(what); exit(1); }
}
static char *map(long pages, int fd) {
    int how = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_PRIVATE;
    char *at = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, how, fd, 0);
    must(at != MAP_FAILED, "mmap");
    return at;
}
static void *at_once(void *nothing) { return nothing; }
static void handler(int number) { (void)number; }
static void end(pid_t child) { must(child > 0 && waitpid(child, NULL, 0) == child, "child"); }

static void touched(long n, int read_first) {
    char *at = map(n ? n : 1, -1);
    madvise(at, n * PAGE, MADV_NOHUGEPAGE);
    if (read_first) FOR seen = at[i * PAGE];
    FOR at[i * PAGE] = 1;
    munmap(at, (n ? n : 1) * PAGE);
}
static void file_faults(long n) {
    int fd = open("tree.tar", O_RDONLY);
    must(fd >= 0, "tree.tar");
    FOR {
        char *at = map(PAGES, fd);
        for (long page = 0; page < PAGES; page++) seen = at[page * PAGE];
        munmap(at, PAGES * PAGE);
    }
}
static void written(long n, int synced) {
    int fd = open("out/loop", O_CREAT | O_RDWR, 0600);
    must(fd >= 0, "out/loop");
    FOR {
        must(pwrite(fd, buffer, PAGE, 0) == PAGE, "write");
        if (synced) must(fsync(fd) == 0, "fsync");
    }
}
static void switched(long n) {
    int there[2], back[2];
    must(pipe(there) == 0 && pipe(back) == 0, "pipe");
    pid_t child = fork();
    if (child == 0) {
        FOR must(read(there[0], buffer, 1) == 1 && write(back[1], buffer, 1) == 1, "pipe");
        _exit(0);
    }
    FOR must(write(there[1], buffer, 1) == 1 && read(back[0], buffer, 1) == 1, "pipe");
    end(child);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    const char *name = argv[1];
    long n = atol(argv[2]);
    struct stat found;
    if (!strcmp(name, "nothing")) {
    } else if (!strcmp(name, "null")) { FOR syscall(SYS_getppid);
    } else if (!strcmp(name, "stat")) { FOR must(stat(FILE_NAME, &found) == 0, name);
    } else if (!strcmp(name, "open")) { FOR close(open(FILE_NAME, O_RDONLY));
    } else if (!strcmp(name, "read")) {
        int fd = open("tree.tar", O_RDONLY);
        FOR must(pread(fd, buffer, 512, 0) == 512, name);
    } else if (!strcmp(name, "write")) { written(n, 0);
    } else if (!strcmp(name, "fsync")) { written(n, 1);
    } else if (!strcmp(name, "getdents")) {
        FOR {
            DIR *folder = opendir("tree/d0");
            must(folder != NULL, name);
            while (readdir(folder)) ;
            closedir(folder);
        }
    } else if (!strcmp(name, "mmap")) { FOR munmap(map(1, -1), PAGE);
    } else if (!strcmp(name, "mprotect")) {
        char *at = map(1, -1);
        FOR mprotect(at, PAGE, i % 2 ? PROT_READ | PROT_WRITE : PROT_READ);
    } else if (!strcmp(name, "signal")) {
        signal(SIGUSR1, handler);
        pid_t own = getpid();
        FOR kill(own, SIGUSR1);
    } else if (!strcmp(name, "anonymous")) { touched(n, 0);
    } else if (!strcmp(name, "cow")) { touched(n, 1);
    } else if (!strcmp(name, "file")) { file_faults(n);
    } else if (!strcmp(name, "fork")) {
        FOR {
            pid_t child = fork();
            if (child == 0) _exit(0);
            end(child);
        }
    } else if (!strcmp(name, "exec")) {
        FOR {
            pid_t child = vfork();
            if (child == 0) { execl("/bin/true", "true", (char *)NULL); _exit(127); }
            end(child);
        }
    } else if (!strcmp(name, "thread")) {
        FOR {
            pthread_t one;
            must(pthread_create(&one, NULL, at_once, NULL) == 0 && pthread_join(one, NULL) == 0, name);
        }
    } else if (!strcmp(name, "switch")) { switched(n);
    } else return 2;
    return 0;
}
