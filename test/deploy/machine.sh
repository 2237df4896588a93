#!/bin/sh
# For machine.ts: a machine whose /etc, /opt, /var/lib, /var/log and /tmp/packs are folders below FOLDER, and whose
# first process is systemd. `machine.sh FOLDER NODE`, in a mount namespace of its own.
#
#   outside   that namespace, with the folders in their places: what knows processes by their numbers runs here
#   inside    a further one, with processes, devices, control groups and /run of its own: systemd
#
# NODE is the machine's Node: services find it, and nothing else that this one has installed by hand.
set -eu
root=$1 node=$2 stage=${3:-outside}

outside() {
  cp -a /etc "$root/etc"
  # It may be a link into /run, which is another one inside.
  rm -f "$root/etc/resolv.conf"
  cat /etc/resolv.conf >"$root/etc/resolv.conf"
  rm -rf "$root/etc/systemd/system"
  mkdir -p "$root/etc/systemd/system" /tmp/packs
  for path in /etc /opt /var/lib /var/log /tmp/packs; do
    mkdir -p "$root$path"
    mount --bind "$root$path" "$path"
  done
  mkdir /opt/node
  touch /opt/node/node
  mount --bind "$node" /opt/node/node
  # A control group of its own: systemd takes the one it is in for the root of all.
  mkdir "$root/groups"
  mount -t cgroup2 cgroup "$root/groups"
  mkdir "$root/groups/homing-$$"
  echo $$ >"$root/groups/homing-$$/cgroup.procs"
  setpriv --pdeathsig KILL \
    unshare --cgroup --mount --pid --fork --kill-child --mount-proc --ipc --uts --propagation private \
    sh "$0" "$root" "$node" inside </dev/null &
  # Until the test is over; all others end with this.
  cat >/dev/null
}

inside() {
  umount "$root/groups"
  mount -t cgroup2 cgroup /sys/fs/cgroup
  mount -t tmpfs -o mode=755 tmpfs /run
  own_devices
  mkdir -p /run/units/sysinit.target.wants /run/systemd/system.conf.d
  # None of the machine's own services is started.
  for unit in sysinit.target basic.target sockets.target multi-user.target network-online.target shutdown.target \
    umount.target final.target systemd-journald.service systemd-journald.socket; do
    cp "/lib/systemd/system/$unit" /run/units/
  done
  ln -s ../systemd-journald.service /run/units/sysinit.target.wants/
  printf '[Manager]\nDefaultEnvironment=PATH=/opt/node:/usr/bin:/bin\n' >/run/systemd/system.conf.d/node.conf
  # It leaves alone what a container has no say in: clock, kernel, devices.
  exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=homing-test \
    SYSTEMD_UNIT_PATH=/etc/systemd/system:/run/units /lib/systemd/systemd --system --unit=multi-user.target
}

own_devices() {
  dev="$root/dev"
  mkdir "$dev"
  mount -t tmpfs -o mode=755 tmpfs "$dev"
  for name in null zero full random urandom tty; do
    touch "$dev/$name"
    mount --bind "/dev/$name" "$dev/$name"
  done
  mkdir "$dev/pts" "$dev/shm"
  mount --rbind /dev/pts "$dev/pts"
  mount -t tmpfs -o mode=1777 tmpfs "$dev/shm"
  ln -s pts/ptmx "$dev/ptmx"
  ln -s /proc/self/fd "$dev/fd"
  ln -s /proc/self/fd/0 "$dev/stdin"
  ln -s /proc/self/fd/1 "$dev/stdout"
  ln -s /proc/self/fd/2 "$dev/stderr"
  mount --rbind "$dev" /dev
}

"$stage"
