# Small questions about what a command finds around it: NAME=ANSWER, one a line.
# Answers that differ in each repetition (a path, a process number) are turned into yes or no.
q() { printf '%s=%s\n' "$1" "$(shift; "$@" 2>&1 | tr '\n' ' ')"; }
is() { name=$1; shift; if "$@" >/dev/null 2>&1; then echo "$name=yes"; else echo "$name=no"; fi; }
is home-empty sh -c 'test -z "$(ls -A ~)"'
is home-writable test -w "$HOME"
is home-absolute sh -c 'cd / && test -d "$HOME"'
q own-variable echo "$SIZE"
q secret-variable echo "${MY_TOKEN:-none}"
q session-variable echo "${SSH_AUTH_SOCK:-none}"
q path echo "$PATH"
q locale echo "$LANG $LC_ALL"
q time-zone date +%Z
q terminal sh -c 'tty; true'
q term-variable echo "${TERM:-none}"
q tmpdir echo "$TMPDIR"
is tmpdir-writable test -w "$TMPDIR"
q standard-input wc -c
is standard-output-regular test -f /dev/stdout
is standard-error-regular test -f /dev/stderr
q working-folder pwd
is working-folder-writable sh -c 'touch .vtax-question && rm .vtax-question'
q umask umask
q user id -un
q group id -gn
q groups id -G
q signals-ignored grep SigIgn /proc/self/status
q signals-blocked grep SigBlk /proc/self/status
q open-files sh -c 'ls /proc/$$/fd | grep -c "^[0-2]$"'
q more-open-files sh -c 'ls /proc/$$/fd | grep -vc "^[0-9]$"'
q nice nice
q scheduling-policy sh -c 'awk "{print \$41}" /proc/self/stat'
q oom-score cat /proc/self/oom_score_adj
q personality cat /proc/self/personality
q no-new-privileges grep NoNewPrivs /proc/self/status
q seccomp grep '^Seccomp:' /proc/self/status
q capabilities grep CapEff /proc/self/status
q limit-core ulimit -c
q limit-data ulimit -d
q limit-files ulimit -n
q limit-file-size ulimit -f
q limit-locked-memory sh -c 'ulimit -l'
q limit-stack ulimit -s
q limit-time ulimit -t
q limit-virtual-memory ulimit -v
q limit-processes bash -c 'ulimit -u'
q limit-real-time bash -c 'ulimit -r'
q limit-pending-signals bash -c 'ulimit -i'
q limit-message-queues bash -c 'ulimit -q'
q processors nproc
q host-name uname -n
q kernel uname -s
q machine uname -m
is loopback grep -q '^ *lo:' /proc/net/dev
is other-interface sh -c 'grep -v "^ *lo:" /proc/net/dev | grep -q :'
for each in null zero full random urandom tty ptmx fd stdin stdout stderr shm pts; do
  is "dev-$each" test -e "/dev/$each"
done
is shared-memory-writable test -w /dev/shm
is process-substitution bash -c 'cat <(true)'
is home-of-account sh -c 'test -r "$(getent passwd "$(id -u)" | cut -d: -f6)/.profile"'
is shadow-readable test -r /etc/shadow
is run-writable test -w /run
is sys-writable sh -c 'echo 1 > /sys/kernel/nothing'
