package cloudtest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

// box is an environment for a script: a PATH with the ordinary commands and those that the test
// adds, and no AWS_* and TF_* variables.
type box struct {
	t    *testing.T
	dir  string
	bin  string
	vars []string
}

// ordinary are the commands that the scripts may use. Every Debian has them.
var ordinary = []string{
	"awk", "basename", "bash", "blkid", "cat", "chmod", "cp", "cut", "date", "dirname", "grep", "head", "hostname", "mkdir", "mkfs.ext4", "mktemp", "rm", "sed", "sort", "tail", "tr",
}

func newBox(t *testing.T) *box {
	b := &box{t: t, dir: t.TempDir()}
	b.bin = filepath.Join(b.dir, "bin")
	require.NoError(t, os.Mkdir(b.bin, 0o755))
	for _, name := range ordinary {
		path, err := exec.LookPath(name)
		if errors.Is(err, exec.ErrNotFound) {
			path, err = exec.LookPath("/usr/sbin/" + name) // not on everyone's PATH
		}
		require.NoError(t, err)
		require.NoError(t, os.Symlink(path, filepath.Join(b.bin, name)))
	}
	b.vars = []string{"PATH=" + b.bin, "HOME=" + b.dir, "LC_ALL=C.UTF-8"}
	return b
}

// command adds a shell script to the ordinary commands.
func (b *box) command(name, script string) {
	b.write(filepath.Join("bin", name), "#!/bin/bash\n"+script+"\n")
}

// write writes a file in the box.
func (b *box) write(name, text string) string {
	path := filepath.Join(b.dir, name)
	require.NoError(b.t, os.MkdirAll(filepath.Dir(path), 0o755))
	// Always create a new file: an existing one in bin is a link to the machine's own program.
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		require.NoError(b.t, err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	require.NoError(b.t, err)
	_, err = f.WriteString(text)
	require.NoError(b.t, err)
	require.NoError(b.t, f.Close())
	return path
}

func (b *box) read(name string) string {
	text, err := os.ReadFile(filepath.Join(b.dir, name))
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	require.NoError(b.t, err)
	return string(text)
}

func (b *box) set(name, value string) { b.vars = append(b.vars, name+"="+value) }

// terraform gives the box its own terraform/ with these settings.
func (b *box) terraform(settings string) {
	for _, name := range []string{"variables.tf", "prices.tsv"} {
		b.write("terraform/"+name, file(b.t, "terraform/"+name))
	}
	b.write("terraform/terraform.tfvars", settings)
	b.set("TERRAFORM_DIR", filepath.Join(b.dir, "terraform"))
}

// run runs a script of the project and returns its output.
func (b *box) run(script string, args ...string) (out string, ok bool) {
	path, err := filepath.Abs(filepath.Join(root, script))
	require.NoError(b.t, err)
	cmd := exec.Command("/bin/bash", append([]string{path}, args...)...)
	cmd.Env = b.vars
	text, err := cmd.CombinedOutput()
	if err != nil {
		require.ErrorAs(b.t, err, new(*exec.ExitError), "bash itself")
	}
	return strings.ReplaceAll(string(text), b.dir, "BOX"), err == nil
}

func file(t *testing.T, name string) string {
	text, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	return string(text)
}
