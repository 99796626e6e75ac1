/* Processes that come and go: for each number on stdin so many new ones, whose pids are printed; those of the line
 * LIVES before it end. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIVES 3
#define MOST 1024

int main(void) {
    static pid_t lines[LIVES][MOST];
    int count;
    for (int line = 0; scanf("%d", &count) == 1 && count <= MOST; line = (line + 1) % LIVES) {
        for (int number = 0; number < MOST; number++) {
            if (!lines[line][number]) continue;
            kill(lines[line][number], SIGKILL);
            waitpid(lines[line][number], NULL, 0);
            lines[line][number] = 0;
        }
        for (int number = 0; number < count; number++) {
            pid_t pid = fork();
            if (pid == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                close(0);
                close(1);
                for (;;) pause();
            }
            if (pid < 0) return 1;
            lines[line][number] = pid;
            printf("%d ", pid);
        }
        printf("\n");
        fflush(stdout);
    }
    return 0;
}
