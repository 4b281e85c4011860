#!/bin/bash
# Boots systemd over a copy-on-write view of this machine: `machine.sh FOLDER`, inside new namespaces but that of the
# network. FOLDER/files is seen as /src. Nothing is written outside FOLDER; what could reach the real machine is masked.
set -euo pipefail
folder=$1 root=$1/root
mkdir -p "$folder/disk" "$root"
mount -t tmpfs tmpfs "$folder/disk"
mkdir "$folder/disk/upper" "$folder/disk/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/disk/upper,workdir=$folder/disk/work" "$root"
mkdir -p "$root/src"
mount --bind "$folder/files" "$root/src"
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t tmpfs tmpfs "$root/sys/fs/cgroup"
if grep -q 'name=systemd' /proc/self/cgroup; then
  mkdir "$root/sys/fs/cgroup/systemd" "$root/sys/fs/cgroup/unified"
  mount -t cgroup -o none,name=systemd,xattr cgroup "$root/sys/fs/cgroup/systemd"
  mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup/unified"
else
  umount "$root/sys/fs/cgroup"
  mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
fi
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for name in null zero full random urandom tty; do
  mknod -m 666 "$root/dev/$name" c $(stat -c 'dec %Hr %Lr' "/dev/$name" | cut -d ' ' -f 2-)
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
mount -t tmpfs tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
for path in run tmp; do mount -t tmpfs tmpfs "$root/$path"; done
chmod 1777 "$root/tmp"
: > "$root/etc/fstab"
rm -rf "$root/etc/systemd/system" && mkdir -p "$root/etc/systemd/system"
for unit in networking systemd-networkd NetworkManager systemd-udevd systemd-modules-load systemd-sysctl; do
  ln -s /dev/null "$root/etc/systemd/system/$unit.service"
done
printf '[Unit]\nWants=systemd-journald.service\nAfter=systemd-journald.service\n' > "$root/etc/systemd/system/boot.target"
# No chroot: from within one nobody may make user namespaces, which the unit's PrivateUsers wants.
mkdir "$root/run/old"
cd "$root"
pivot_root . run/old
umount --lazy /run/old
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin \
  setpriv --bounding-set -sys_module,-sys_boot,-sys_time,-sys_rawio \
  /lib/systemd/systemd --system --unit=boot.target
