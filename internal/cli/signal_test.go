package cli

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// The first signal asks a command to end. A command that does not, because what it waits
// for never comes, is ended by the second.
func TestSecondSignal(t *testing.T) {
	if os.Getenv("CLI_TEST_STUCK") != "" {
		root := &cobra.Command{Use: "stuck", RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Println("runs")
			<-cmd.Context().Done()
			fmt.Println("was asked")
			select {}
		}}
		root.SetArgs(nil)
		os.Exit(Run(root, "stuck"))
	}
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "TestSecondSignal")
		cmd.Env = append(os.Environ(), "CLI_TEST_STUCK=1")
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		defer cmd.Process.Kill()
		lines := bufio.NewScanner(out)
		require.True(t, lines.Scan())
		require.Equal(t, "runs", lines.Text())
		require.NoError(t, cmd.Process.Signal(s))
		require.True(t, lines.Scan())
		require.Equal(t, "was asked", lines.Text())
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		// The signals are given back right after the command was asked.
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		limit := time.After(time.Minute)
		for done := false; !done; {
			select {
			case err := <-ended:
				require.Error(t, err)
				status := cmd.ProcessState.Sys().(syscall.WaitStatus)
				require.True(t, status.Signaled())
				require.Equal(t, s, status.Signal())
				done = true
			case <-tick.C:
				_ = cmd.Process.Signal(s)
			case <-limit:
				t.Fatal("the second signal has not ended it")
			}
		}
	}
}
