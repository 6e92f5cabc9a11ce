package cloudtest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// host returns a box that looks like an EC2 host; files are its disks.
func host(t *testing.T, disk string, disks ...string) *box {
	b := newBox(t)
	b.write("host", "OS=debian\nPACKAGES=\"\"\nDISK="+disk+"\nDATA="+filepath.Join(b.dir, "data")+"\nMAX_MINUTES=60\n")
	var list strings.Builder
	list.WriteString("/dev/nvme0n1 Amazon Elastic Block Store\n")
	for _, d := range disks {
		list.WriteString(b.disk(d) + " Amazon EC2 NVMe Instance Storage\n")
	}
	b.write("lsblk", list.String())
	b.command("lsblk", `[ "$*" = "-dnpo NAME,MODEL" ] && cat "$HOME/lsblk"`)
	b.command("mountpoint", `[ -e "$HOME/mounted" ]`)
	b.command("mount", `echo "$*" >>"$HOME/mounted"`)
	b.command("install", `echo "$*" >>"$HOME/installed"`)
	return b
}

// disk creates a blank disk.
func (b *box) disk(name string) string {
	path := filepath.Join(b.dir, name)
	f, err := os.Create(path)
	require.NoError(b.t, err)
	require.NoError(b.t, f.Truncate(16<<20))
	require.NoError(b.t, f.Close())
	return path
}

func (b *box) mountDisk() (string, bool) {
	return b.run("terraform/templates/disk.sh", filepath.Join(b.dir, "host"))
}

func TestDiskIsFormattedOnce(t *testing.T) {
	b := host(t, "required", "nvme1n1")
	out, ok := b.mountDisk()
	require.True(t, ok, out)
	require.Equal(t, "BOX/nvme1n1 is mounted at BOX/data\n", out)
	require.Equal(t, "-o noatime "+b.dir+"/nvme1n1 "+b.dir+"/data\n", b.read("mounted"))
	require.Contains(t, b.read("installed"), "-d -m 0750 -o tailrace -g tailrace "+b.dir+"/data/storage\n")

	// Run it again, while the disk is mounted.
	formatted := b.read("nvme1n1")
	out, ok = b.mountDisk()
	require.True(t, ok, out)
	require.Empty(t, out)

	// After a restart the disk is unchanged, has another name, and is not mounted.
	require.NoError(t, os.Remove(filepath.Join(b.dir, "mounted")))
	require.NoError(t, os.Rename(filepath.Join(b.dir, "nvme1n1"), filepath.Join(b.dir, "nvme2n1")))
	b.write("lsblk", b.dir+"/nvme2n1 Amazon EC2 NVMe Instance Storage\n")
	out, ok = b.mountDisk()
	require.True(t, ok, out)
	require.Equal(t, "BOX/nvme2n1 is mounted at BOX/data\n", out)
	require.True(t, b.read("nvme2n1") == formatted, "a restart has formatted the disk anew")
}

func TestDiskOfOthersIsNotTouched(t *testing.T) {
	b := host(t, "required", "nvme1n1")
	out, ok := b.mountDisk()
	require.True(t, ok, out)
	require.NoError(t, os.Remove(filepath.Join(b.dir, "mounted")))

	text := strings.Replace(b.read("nvme1n1"), "tailrace", "precious", 1) // its label
	b.write("nvme1n1", text)
	out, ok = b.mountDisk()
	require.False(t, ok, out)
	require.Contains(t, out, "BOX/nvme1n1 holds something that is not ours (")
	require.Contains(t, out, "if it can go, wipefs -a BOX/nvme1n1, then systemctl restart tailrace-disk")
	require.True(t, b.read("nvme1n1") == text, "it was written to")
	require.Empty(t, b.read("mounted"))
}

func TestNoDisk(t *testing.T) {
	b := host(t, "required")
	out, ok := b.mountDisk()
	require.False(t, ok, out)
	require.Contains(t, out, "no local NVMe disk, and this host keeps its data on one: choose an instance type that has it")
	require.Empty(t, b.read("installed"), "the services must find no directory to fill the root disk with")

	b = host(t, "optional")
	out, ok = b.mountDisk()
	require.True(t, ok, out)
	require.Equal(t, "no local NVMe disk: BOX/data is on the root disk\n", out)
	require.Contains(t, b.read("installed"), "/data/worker\n")

	b = host(t, "required", "nvme2n1", "nvme1n1")
	out, ok = b.mountDisk()
	require.True(t, ok, out)
	require.Equal(t, "2 local disks, BOX/nvme1n1 is used\nBOX/nvme1n1 is mounted at BOX/data\n", out)

	b = host(t, "required", "nvme1n1")
	require.NoError(t, os.Remove(filepath.Join(b.dir, "nvme1n1")))
	b.command("blkid", "exit 4")
	out, ok = b.mountDisk()
	require.False(t, ok, out)
	require.Contains(t, out, "BOX/nvme1n1 cannot be read (blkid: exit code 4)")
}

func TestDeadline(t *testing.T) {
	in := func(d time.Duration) string { return strconv.FormatInt(time.Now().Add(d).Unix(), 10) }
	for name, c := range map[string]struct {
		file string
		ends bool
		want string
	}{
		"hours left":   {in(time.Hour), false, ""},
		"minutes left": {in(5*time.Minute) + "\n", false, "this host switches itself off in "},
		"over":         {in(-time.Second), true, "the time of this host is over"},
		"nonsense":     {"tomorrow", true, "the time of this host is over"},
		"empty":        {"", true, "the time of this host is over"},
		"missing":      {"-", true, "the time of this host is over"},
	} {
		b := newBox(t)
		b.command("systemctl", `echo "$*" >>"$HOME/systemctl"`)
		if c.file != "-" {
			b.write("deadline", c.file)
		}
		out, ok := b.run("terraform/templates/deadline.sh", filepath.Join(b.dir, "deadline"))
		require.True(t, ok, "%s: %s", name, out)
		require.Contains(t, out, c.want, name)
		require.Equal(t, c.ends, b.read("systemctl") == "poweroff\n", "%s: %s", name, out)
	}
}

// A command that a test replaces is replaced only in its box.
func TestBoxLeavesTheMachineAlone(t *testing.T) {
	b := newBox(t)
	path, err := filepath.EvalSymlinks(filepath.Join(b.bin, "blkid"))
	require.NoError(t, err)
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	b.command("blkid", "exit 4")
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, string(before) == string(after), "%s was overwritten", path)
	require.Equal(t, "#!/bin/bash\nexit 4\n", b.read("bin/blkid"))
}
