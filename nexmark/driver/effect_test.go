package driver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/tasks"
)

// made returns moments with these p99, the highest latency being one ms above; 0: no row came.
func made(p99 ...MS) (all []Moment) {
	for i, p := range p99 {
		m := Moment{At: MS(100 * (i + 1)), Visible: Short{p - 1, p, p + 1}}
		if p == 0 {
			m.Visible = unseen()
		}
		all = append(all, m)
	}
	return all
}

// The effect of a rescale is seen in the moments around it.
func TestEffect(t *testing.T) {
	all := made(8, 9, 8, 100, 0, 40, 8, 20, 8, 8, 8, 8, 8, 8, 8, 8, 300)
	// It was asked for at the end of the third moment.
	require.Equal(t, &Effect{P99Before: 8, Peak: 101, Back: 500}, effectOf(all, 300, 5, Unseen()))
	// In the middle of the fourth one: that belongs to it, and is as high as it was.
	require.Equal(t, &Effect{P99Before: 8, Peak: 101, Back: 450}, effectOf(all, 350, 5, Unseen()))
	// What comes a second after it has settled, or behind the next one, is not its effect.
	require.Equal(t, MS(301), effectOf(all, 300, 500, Unseen()).Peak)
	require.Equal(t, MS(21), effectOf(all, 600, 5, 1600).Peak)
	// The latency did not come back before the next rescale.
	e := effectOf(all, 300, 5, 900)
	require.Equal(t, MS(101), e.Peak)
	require.False(t, e.Back.Seen())
	// Nothing was measured before it, or after it.
	require.Nil(t, effectOf(all, 0, 5, Unseen()))
	require.Nil(t, effectOf(all, 1700, 5, Unseen()))
}

func TestEffects(t *testing.T) {
	begin := time.Now()
	rescaled := []Rescaled{
		{Rescaled: tasks.Rescaled{SettledMS: 5}, asked: begin.Add(-time.Second)},
		{Rescaled: tasks.Rescaled{SettledMS: 5}, asked: begin.Add(300 * time.Millisecond)},
		{Rescaled: tasks.Rescaled{SettledMS: 5}, asked: begin.Add(600 * time.Millisecond)},
		{NotDone: "the run had ended"},
	}
	effects(rescaled, made(8, 9, 8, 100, 0, 40, 8, 8, 8, 8), begin)
	require.Nil(t, rescaled[0].Effect)
	require.Equal(t, MS(101), rescaled[1].Effect.Peak)
	require.Equal(t, MS(9), rescaled[2].Effect.Peak)
	require.Nil(t, rescaled[3].Effect)
	require.Contains(t, rescaled[2].Effects(), "peak 9.0 ms")
	require.Empty(t, rescaled[0].Effects())
}
