package clustertest

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An invalid hosts file is refused with line and remedy, all of its errors at once, before any host
// is contacted.
func TestHostsFile(t *testing.T) {
	const good = `option insecure
control control-1 10.0.0.1 a@h1
sequencer s-1 10.0.0.1 a@h1
sequencer s-2 10.0.0.2 a@h2
sequencer s-3 10.0.0.3 a@h3
storage storage-1 10.0.0.1 a@h1
storage storage-2 10.0.0.2 a@h2
storage storage-3 10.0.0.3 a@h3
compute compute-1 10.0.0.1 a@h1
`
	for name, c := range map[string]struct {
		from, to string
		want     []string
	}{
		"unknown role":         {"compute compute-1", "computer compute-1", []string{":9: no role is called computer: use control, sequencer", "no compute line"}},
		"too few words":        {"storage storage-1 10.0.0.1 a@h1", "storage storage-1 10.0.0.1", []string{":6: want ROLE NAME ADDRESS SSH-TARGET"}},
		"unknown key":          {"a@h1\nsequencer s-2", "a@h1 prot=1\nsequencer s-2", []string{":3: prot=1: no such key: use home"}},
		"no value":             {"a@h1\nsequencer s-2", "a@h1 port\nsequencer s-2", []string{":3: port: give a value"}},
		"no port":              {"a@h1\nsequencer s-2", "a@h1 port=70000\nsequencer s-2", []string{":3: port=70000: a port is a number from 1 to 65535"}},
		"port twice":           {"a@h1\nsequencer s-2", "a@h1 port=7001\nsequencer s-2", []string{":6: storage-1: port 7001 of 10.0.0.1 is s-1-sequencer's already"}},
		"name twice":           {"storage-2", "storage-1", []string{":7: the name storage-1 is taken by line 6"}},
		"even sequencers":      {"sequencer s-3 10.0.0.3 a@h3\n", "", []string{"2 sequencer lines: 3 or 5, an odd number"}},
		"too few storage":      {"storage storage-3 10.0.0.3 a@h3\n", "", []string{"2 storage lines: at least 3"}},
		"no control":           {"control control-1 10.0.0.1 a@h1\n", "", []string{"0 control lines: exactly one"}},
		"two homes of a host":  {"compute compute-1 10.0.0.1 a@h1", "compute compute-1 10.0.0.1 a@h1 home=/x", []string{":9: compute-1 is on the same host as control-1 (a@h1): home= and launch= must be the same"}},
		"relative home":        {"compute compute-1 10.0.0.1 a@h1", "compute compute-1 10.0.0.1 a@h4 home=x", []string{":9: home=x: an absolute path"}},
		"unknown launch":       {"compute compute-1 10.0.0.1 a@h1", "compute compute-1 10.0.0.1 a@h4 launch=docker", []string{":9: launch=docker: use process or systemd"}},
		"unknown option":       {"option insecure", "option secure", []string{":1: there is no option secure: use cluster"}},
		"option without value": {"option insecure", "option identity", []string{":1: option identity: give a value"}},
		"no such identity":     {"option insecure", "option identity nowhere", []string{"nowhere: cannot be read"}},
		"data twice":           {"compute compute-1 10.0.0.1 a@h1", "compute compute-1 10.0.0.1 a@h1\nstorage storage-4 10.0.0.1 a@h1 port=1 http=2 data=/opt/tailrace/storage-1", []string{":10: storage-4: /opt/tailrace/storage-1/storage is the directory of storage-1 already"}},
		"two mistakes":         {"storage storage-1 10.0.0.1 a@h1\nstorage storage-2 10.0.0.2 a@h2", "storage storage-1\nstorage storage-2 x:7 a@h2", []string{":6: want ROLE", ":7: address x:7: an IPv4 address or a host name, without a port", "3 mistakes; nothing was started"}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, good, c.from)
			hosts := filepath.Join(t.TempDir(), "hosts")
			require.NoError(t, os.WriteFile(hosts, []byte(strings.Replace(good, c.from, c.to, 1)), 0o600))
			out, err := exec.Command(scripts+"cluster.sh", "check", "--hosts", hosts, "--state", t.TempDir()).CombinedOutput()
			require.Error(t, err)
			for _, want := range c.want {
				require.Contains(t, string(out), want)
			}
		})
	}
}

// The hosts file that terraform generates is accepted, and its costs are counted. Its text is the
// one that terraform's own tests expect.
func TestHostsFileOfTerraform(t *testing.T) {
	tests, err := os.ReadFile("../../../terraform/tests/cluster.tftest.hcl")
	require.NoError(t, err)
	_, text, found := strings.Cut(string(tests), "output.hosts_file == <<-E\n")
	require.True(t, found)
	text, _, found = strings.Cut(text, "\n    E\n")
	require.True(t, found)
	// The mocked provider gives all hosts one address, and hosts are told apart by address.
	text = regexp.MustCompile(`( \d+\.\d+\.\d+\.)(\d+) admin@\S+`).ReplaceAllString(text, "$1$2 admin@h$2")
	hosts := filepath.Join(t.TempDir(), "hosts")
	require.NoError(t, os.WriteFile(hosts, []byte(text), 0o600))
	cost := func() string {
		cmd := exec.Command(scripts+"cluster.sh", "cost", "--hosts", hosts, "--state", t.TempDir(), "--max-hours", "2.5")
		cmd.Env = append(os.Environ(), "TERRAFORM_DIR=")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	// 7 × 0.384; 7 × (0.005 + 20 × 0.00011)
	require.Equal(t, `compute    2 × c5d.2xlarge      0.3840 USD an hour each
control    1 × c5d.2xlarge      0.3840 USD an hour each
input      1 × c5d.2xlarge      0.3840 USD an hour each
storage    3 × c5d.2xlarge      0.3840 USD an hour each
7 hosts in the hosts file, 2.5 h: about 6.85 USD (2.74 an hour; of it 0.05 for root disks and addresses)
an estimate by terraform/prices.tsv, traffic not counted: check it against the price list of your region
`, cost())

	text = strings.Replace(text, "type=c5d.2xlarge launch=systemd\n", "launch=systemd\n", 1)
	text = strings.Replace(text, "h96 data=/mnt/tailrace type=c5d.2xlarge", "h96 data=/mnt/tailrace type=c5d.2xlagre", 1)
	require.NoError(t, os.WriteFile(hosts, []byte(text), 0o600))
	out := cost()
	require.Contains(t, out, "cost: 1 of 7 hosts have no type= in "+hosts+" and are not counted\n")
	require.Contains(t, out, "prices.tsv has no price for c5d.2xlagre (compute): misspelt? If not, add a line\ncost: no estimate\n")
}

func TestUsage(t *testing.T) {
	hosts := filepath.Join(t.TempDir(), "hosts")
	for args, want := range map[string]string{
		"begin":                               "there is no command begin",
		"check":                               "--hosts: which hosts?",
		"check --hosts":                       "--hosts: a value is missing",
		"check --hosts " + hosts:              "cannot be read",
		"check --hosts x --max-hours soon":    "--max-hours soon: a number of hours",
		"check --hosts x --on-host-loss pray": "--on-host-loss pray: stop or go-on",
		"check --hosts x --speed 3":           "--speed: there is no such option",
		"build --hosts x --dist " + t.TempDir() + "/none": "no such directory",
	} {
		out, err := exec.Command(scripts+"cluster.sh", strings.Fields(args)...).CombinedOutput()
		require.Error(t, err, args)
		require.Contains(t, string(out), want, args)
	}
}

// Whatever makes a host unfit is reported with host and remedy, and nothing is started.
func TestHostsThatAreNotFit(t *testing.T) {
	soak(t)
	w := newWorld(t)
	refused := func(name, step string, want ...string) {
		t.Helper()
		text, code := w.run(step)
		require.Equal(t, 1, code, "%s: %s", name, text)
		for _, what := range append(want, "nothing was started") {
			require.Regexp(t, what, text, name)
		}
		require.Empty(t, w.pids(), name)
	}
	keep := func(name string, change func(string) string, during func()) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(w.dir, name))
		require.NoError(t, err)
		w.edit(name, change)
		during()
		require.NoError(t, os.WriteFile(filepath.Join(w.dir, name), text, 0o600))
	}
	const host2 = `\S+ \(sequencer-2, storage-2, input-2, compute-2\): `

	address, err := os.ReadFile(filepath.Join(w.dir, "ssh/host-2.address"))
	require.NoError(t, err)
	l, err := net.Listen("tcp", strings.TrimSpace(string(address))+":7001")
	require.NoError(t, err)
	refused("port in use", "check", host2+`port 7001, which storage-2 is to have, is in use by clustertest\S* \(pid \d+\): end that, or give another port`)
	require.NoError(t, l.Close())

	w.local("kill", "host-2")
	refused("no sshd", "check", host2+`ssh \S+ port 2222: connection refused. Nothing listens there`)
	w.localAs([]string{"setarch", "i686"}, "boot", "host-2")
	refused("another machine", "check", host2+`its architecture is i686: programs are built for x86_64`)
	w.local("kill", "host-2")
	keep("ssh/host-2.config", func(text string) string {
		library, err := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
		require.NoError(t, err)
		require.Len(t, library, 1, "install faketime")
		return strings.TrimSpace(text) + " LD_PRELOAD=" + library[0] + " FAKETIME=+3s\n"
	}, func() {
		w.local("boot", "host-2")
		refused("clocks", "check", `the clocks of \S+ \(.*\) and \S+ \(sequencer-2, .*\) are (299\d|300\d)\.\d ms apart .*, 50 are allowed`)
		w.local("kill", "host-2")
	})
	w.local("boot", "host-2")

	keep("ssh/known_hosts", func(text string) string {
		lines := strings.Split(text, "\n")
		lines[1] = strings.Fields(lines[1])[0] + " " + strings.SplitN(lines[0], " ", 2)[1]
		return strings.Join(lines, "\n")
	}, func() {
		refused("another key", "check", host2+`ssh \S+ port 2222: the host's key is not the one known of it.*ssh-keygen -R`)
	})
	keep("hosts", func(text string) string { return strings.Replace(text, "ssh/id", "ssh/host-1.key", 1) },
		func() {
			refused("not our key", "check", host2+`ssh \S+ port 2222: permission denied.*option identity FILE`)
		})
	keep("hosts", func(text string) string { return strings.ReplaceAll(text, "/host-2 ", "/ssh/host-2.key/home ") },
		func() {
			refused("no directory", "check", host2+`\S+/home cannot be written to by this user: give another home=`)
		})
	keep("hosts", func(text string) string {
		return strings.ReplaceAll(text, "home="+w.dir+"/host-2 ", "home="+w.dir+"/ssh ")
	},
		func() {
			refused("somebody's directory", "check", host2+`\S+/ssh holds files that are not of this cluster`)
		})
	text, code := w.run("check", "--min-free", "99999999")
	require.Equal(t, 1, code)
	require.Regexp(t, host2+`\S+: \d+ MiB are free, 99999999 are wanted`, text)

	// An older build on one host.
	w.must("build")
	w.must("upload")
	old := filepath.Join(w.dir, "host-2/bin/tailrace")
	out, err := exec.Command("go", "build", "-ldflags", "-w -X tailrace.dev/tailrace/internal/build.stamp=v0-old", "-o", old, "tailrace.dev/tailrace/cmd/tailrace").CombinedOutput()
	require.NoError(t, err, "%s", out)
	version, err := os.ReadFile(filepath.Join(w.state, "version"))
	require.NoError(t, err)
	refused("old program", "start", host2+`has another build: tailrace v0-old.*, but this run's is `+strings.TrimSpace(string(version))+`: run the step upload`)
	w.must("upload")
	w.must("clean")
	w.nothingIsLeft()

	// Programs that do not match their checksums.
	text, code = w.run("upload")
	require.Equal(t, 1, code)
	require.Contains(t, text, "the step build comes before")
}
