package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
)

var both = []sharedlog.Tag{"a", "b"}

// filled returns a log with records under a and b, among others.
func filled(t testing.TB, groups int) sharedlog.Log {
	log := mem.New(mem.Options{})
	t.Cleanup(func() { _ = log.Close() })
	rnd := rand.New(rand.NewPCG(1, 2))
	w := sharedlog.NewWriter(log, "w", sharedlog.Condition{})
	for i := range groups {
		var g []sharedlog.Record
		for range 1 + rnd.IntN(3) {
			tags := [][]sharedlog.Tag{{"a"}, {"b"}, {"a", "b"}, {"other"}, {"\xff \n", "b"}}[rnd.IntN(5)]
			g = append(g, sharedlog.Record{Tags: tags, Data: bytes.Repeat([]byte{byte(i)}, rnd.IntN(40))})
		}
		_, err := w.Append(g...).Wait(t.Context())
		require.NoError(t, err)
	}
	return log
}

// records returns the records of a log under some tags.
func records(t testing.TB, log sharedlog.Log, tags ...sharedlog.Tag) (all []sharedlog.Record) {
	tail, err := log.Tail(t.Context())
	require.NoError(t, err)
	r, err := log.NewReader(sharedlog.ReaderOptions{Tags: tags, Until: tail})
	require.NoError(t, err)
	defer r.Close()
	for {
		b, err := r.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		for _, e := range b.Entries {
			all = append(all, sharedlog.Record{Tags: append([]sharedlog.Tag{}, e.Tags...), Data: append([]byte{}, e.Data...)})
		}
	}
}

func export(t testing.TB, log sharedlog.Log, name string) (dir string, m *Manifest) {
	dir = filepath.Join(t.TempDir(), name)
	m, err := Export(t.Context(), log, dir, ExportOptions{Tags: both, FileBytes: 2000})
	require.NoError(t, err)
	require.NoDirExists(t, dir+partial)
	return dir, m
}

// sameFiles checks that two archives hold the same files of records.
func sameFiles(t testing.TB, a, b string) {
	files, err := filepath.Glob(a + "/records-*")
	require.NoError(t, err)
	others, err := filepath.Glob(b + "/records-*")
	require.NoError(t, err)
	require.Len(t, others, len(files))
	for i := range files {
		x, err := os.ReadFile(files[i])
		require.NoError(t, err)
		y, err := os.ReadFile(others[i])
		require.NoError(t, err)
		require.True(t, bytes.Equal(x, y), "%s and %s differ", files[i], others[i])
	}
}

// What was exported and imported is exported again as the same bytes. A second import does nothing;
// under another name it appends everything once more.
func TestThereAndBack(t *testing.T) {
	log := filled(t, 300)
	dir, m := export(t, log, "x")
	want := records(t, log, both...)
	require.Greater(t, len(m.Files), 3)
	require.EqualValues(t, len(want), m.Records)

	fresh := mem.New(mem.Options{})
	defer fresh.Close()
	done, err := Import(t.Context(), fresh, dir, ImportOptions{})
	require.NoError(t, err)
	require.Equal(t, Imported{Name: m.ID, Records: m.Records, First: 1, Last: done.Last}, done)
	require.Equal(t, want, records(t, fresh, both...))
	again, m2 := export(t, fresh, "x")
	sameFiles(t, dir, again)
	require.Equal(t, m.ID, m2.ID)

	done, err = Import(t.Context(), fresh, dir, ImportOptions{})
	require.NoError(t, err)
	require.Equal(t, Imported{Name: m.ID, Before: m.Records}, done)
	require.Len(t, records(t, fresh, both...), len(want))
	_, err = Import(t.Context(), fresh, dir, ImportOptions{Name: "once more"})
	require.NoError(t, err)
	require.Equal(t, append(want, want...), records(t, fresh, both...))

	other, _ := export(t, filled(t, 20), "y")
	_, err = Import(t.Context(), fresh, other, ImportOptions{Name: "once more"})
	require.ErrorContains(t, err, `another archive was imported as "once more"`)
}

// failing refuses appends from the n-th group on, or makes them and returns an error.
type failing struct {
	sharedlog.Log
	left    int
	unknown bool
}

func (f *failing) Append(g sharedlog.Group) *sharedlog.Pending {
	if f.left--; f.left >= 0 {
		return f.Log.Append(g)
	}
	p := sharedlog.NewPending()
	if f.unknown && f.left == -1 {
		if _, err := f.Log.Append(g).Wait(context.Background()); err != nil {
			panic(err)
		}
		p.Complete(0, sharedlog.Errorf(sharedlog.KindUnknown, "no answer"))
		return p
	}
	p.Complete(0, sharedlog.Errorf(sharedlog.KindFull, "no room"))
	return p
}

// An import that is interrupted at any group continues after what was appended, also if it did not
// learn of it.
func TestInterruptedImports(t *testing.T) {
	log := mem.New(mem.Options{})
	defer log.Close()
	w := sharedlog.NewWriter(log, "w", sharedlog.Condition{})
	for i := range 5000 {
		w.Append(sharedlog.Record{Tags: []sharedlog.Tag{"a"}, Data: fmt.Append(nil, i)})
	}
	dir, m := export(t, log, "x")
	want := records(t, log, "a")
	for _, unknown := range []bool{false, true} {
		for n := range 10 {
			fresh := mem.New(mem.Options{})
			done, err := Import(t.Context(), &failing{fresh, n, unknown}, dir, ImportOptions{})
			require.Error(t, err)
			require.EqualValues(t, n*groupRecords, done.Records, "what has an answer")
			there := len(records(t, fresh, "a"))
			if n < 5 { // and again
				done, err = Import(t.Context(), &failing{fresh, 3, unknown}, dir, ImportOptions{})
				require.Error(t, err)
				require.EqualValues(t, there, done.Before)
				there = len(records(t, fresh, "a"))
			}
			done, err = Import(t.Context(), fresh, dir, ImportOptions{})
			require.NoError(t, err)
			require.EqualValues(t, there, done.Before)
			require.EqualValues(t, m.Records, done.Before+done.Records)
			again, err := Import(t.Context(), fresh, dir, ImportOptions{})
			require.NoError(t, err)
			require.Zero(t, again.Records)
			require.Equal(t, want, records(t, fresh, "a"), "interrupted at group %d, unknown %v", n, unknown)
			require.NoError(t, fresh.Close())
		}
	}
}

// late delays one group until it is released.
type late struct {
	sharedlog.Log
	kept []sharedlog.Group
}

func (l *late) Append(g sharedlog.Group) *sharedlog.Pending {
	l.kept = append(l.kept, g)
	p := sharedlog.NewPending()
	p.Complete(0, sharedlog.Errorf(sharedlog.KindUnknown, "it was killed"))
	return p
}

// Groups of an import that reach the log only after another import has started have no effect.
func TestALateGroupHasNoEffect(t *testing.T) {
	log := filled(t, 50)
	dir, _ := export(t, log, "x")
	fresh := mem.New(mem.Options{})
	defer fresh.Close()
	slow := &late{Log: fresh}
	_, err := Import(t.Context(), slow, dir, ImportOptions{})
	require.Error(t, err)
	require.NotEmpty(t, slow.kept)
	_, err = Import(t.Context(), fresh, dir, ImportOptions{})
	require.NoError(t, err)
	for _, g := range slow.kept {
		_, err := fresh.Append(g).Wait(t.Context())
		require.ErrorIs(t, err, sharedlog.ErrConditionFailed)
	}
	require.Equal(t, records(t, log, both...), records(t, fresh, both...))
}

// Every byte of every file is checked: the error names the file and an offset, and nothing is
// imported.
func TestDamage(t *testing.T) {
	dir, m := export(t, filled(t, 12), "x")
	require.Greater(t, len(m.Files), 0)
	names := []string{manifestName}
	for _, f := range m.Files {
		names = append(names, f.Name)
	}
	fresh := mem.New(mem.Options{})
	defer fresh.Close()
	refused := func(what, name string) {
		t.Helper()
		_, err := Import(t.Context(), fresh, dir, ImportOptions{})
		require.Error(t, err, what)
		if k := sharedlog.KindOf(err); k != sharedlog.KindVersion {
			require.Equal(t, sharedlog.KindCorrupt, k, "%s: %v", what, err)
		}
		require.Contains(t, err.Error(), filepath.Join(dir, name), what)
		require.Contains(t, err.Error(), "offset ", what)
		tail, err := fresh.Tail(t.Context())
		require.NoError(t, err)
		require.Equal(t, sharedlog.First, tail, what)
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		good, err := os.ReadFile(path)
		require.NoError(t, err)
		for i := range good {
			bad := bytes.Clone(good)
			bad[i] ^= 1 << (i % 8)
			require.NoError(t, os.WriteFile(path, bad, 0o644))
			refused(fmt.Sprintf("%s: byte %d", name, i), name)
		}
		for _, n := range []int{0, 7, len(good) / 2, len(good) - 1} {
			require.NoError(t, os.WriteFile(path, good[:n], 0o644))
			refused(fmt.Sprintf("%s: cut at %d", name, n), name)
		}
		require.NoError(t, os.WriteFile(path, append(bytes.Clone(good), 0), 0o644))
		refused(name+": longer", name)
		if name != manifestName {
			require.NoError(t, os.Remove(path))
			refused(name+": missing", name)
		}
		require.NoError(t, os.WriteFile(path, good, 0o644))
	}
	// A valid file of another export with the same length.
	path := filepath.Join(dir, "records-00000001")
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	rec, ok := decodeRecord(good[headerBytes+frameBytes:][:good[headerBytes]])
	require.True(t, ok)
	rec.Tags[0] = "c"
	bad := append(append(bytes.Clone(good[:headerBytes]), appendRecord(nil, &rec)...), good[headerBytes+frameBytes+int(good[headerBytes]):]...)
	require.Len(t, bad, len(good))
	require.NoError(t, os.WriteFile(path, bad, 0o644))
	refused("another record", "records-00000001")
	require.NoError(t, os.WriteFile(path, good, 0o644))

	first, second := filepath.Join(dir, "records-00000001"), filepath.Join(dir, "records-00000002")
	require.NoError(t, os.Rename(first, first+"x"))
	if len(m.Files) > 1 {
		require.NoError(t, os.Rename(second, first))
		require.NoError(t, os.Rename(first+"x", second))
		refused("files exchanged", "records-00000001")
		require.NoError(t, os.Rename(second, first+"x"))
		require.NoError(t, os.Rename(first, second))
	}
	require.NoError(t, os.Rename(first+"x", first))
	_, err = Import(t.Context(), fresh, dir, ImportOptions{})
	require.NoError(t, err)
}

// An export exists under its name only when it is complete. One that fails leaves its work under
// another name. The next one removes that, if it is nothing else.
func TestExportIsWholeOrNotThere(t *testing.T) {
	log := filled(t, 100)
	dir := filepath.Join(t.TempDir(), "x")
	require.NoError(t, log.Trim(t.Context(), "a", 10))
	_, err := Export(t.Context(), log, dir, ExportOptions{Tags: both, From: 1})
	require.ErrorIs(t, err, sharedlog.ErrTrimmed)
	require.ErrorContains(t, err, "--from")
	require.ErrorContains(t, err, dir+partial)
	require.NoDirExists(t, dir)
	require.DirExists(t, dir+partial)
	_, err = Check(dir+partial, false)
	require.ErrorContains(t, err, "is not an archive")
	m, err := Export(t.Context(), log, dir, ExportOptions{Tags: both, From: 10, Until: 20})
	require.NoError(t, err)
	require.NoDirExists(t, dir+partial)
	require.GreaterOrEqual(t, m.First, sharedlog.LSN(10))
	require.Less(t, m.Last, sharedlog.LSN(20))
	_, err = Export(t.Context(), log, dir, ExportOptions{Tags: both, From: 10})
	require.ErrorContains(t, err, "exists already")
	require.NoError(t, os.MkdirAll(dir+"2"+partial, 0o755))
	require.NoError(t, os.WriteFile(dir+"2"+partial+"/mine", nil, 0o644))
	_, err = Export(t.Context(), log, dir+"2", ExportOptions{Tags: both, From: 10})
	require.ErrorContains(t, err, "mine")

	// An export does not wait for records that do not exist yet.
	tail, err := log.Tail(t.Context())
	require.NoError(t, err)
	_, err = Export(t.Context(), log, dir+"4", ExportOptions{Tags: both, From: 10, Until: tail + 1})
	require.ErrorIs(t, err, sharedlog.ErrInvalid)
	require.ErrorContains(t, err, fmt.Sprintf("the log ends at %d", tail))
	require.NoDirExists(t, dir+"4"+partial)

	// An archive may be empty.
	m, err = Export(t.Context(), log, dir+"3", ExportOptions{Tags: []sharedlog.Tag{"none"}, From: 10})
	require.NoError(t, err)
	require.Zero(t, m.Records)
	done, err := Import(t.Context(), log, dir+"3", ImportOptions{})
	require.NoError(t, err)
	require.Zero(t, done.Records)
}

// Records of a job's tags are imported only on request, and a record that fits in no group is
// refused before anything is imported.
func TestWhatIsNotImported(t *testing.T) {
	log := mem.New(mem.Options{})
	defer log.Close()
	w := sharedlog.NewWriter(log, "w", sharedlog.Condition{})
	w.Force = true
	put := func(tag sharedlog.Tag, data []byte, more ...sharedlog.Tag) {
		_, err := w.Append(sharedlog.Record{Tags: append([]sharedlog.Tag{tag}, more...), Data: data}).Wait(t.Context())
		require.NoError(t, err)
	}
	put("a", nil)
	put("a", nil, "X/job/s/0")
	dir, m := export(t, log, "x")
	fresh := mem.New(mem.Options{})
	defer fresh.Close()
	_, err := Import(t.Context(), fresh, dir, ImportOptions{})
	require.ErrorContains(t, err, `record 1 cannot be imported`)
	require.ErrorContains(t, err, `belongs to the job "job"`)
	_, err = Import(t.Context(), fresh, dir, ImportOptions{Name: strings.Repeat("x", sharedlog.MaxNameBytes), Force: true})
	require.ErrorIs(t, err, sharedlog.ErrInvalid)
	done, err := Import(t.Context(), fresh, dir, ImportOptions{Force: true})
	require.NoError(t, err)
	require.Equal(t, m.Records, done.Records)

	put("b", make([]byte, sharedlog.MaxGroupBytes))
	dir, _ = export(t, log, "y")
	_, err = Import(t.Context(), fresh, dir, ImportOptions{Name: "y", Force: true})
	require.ErrorContains(t, err, "record 2 cannot be imported")
}

// The format is unchanged.
func TestGoldenBytes(t *testing.T) {
	for _, c := range []struct {
		got  []byte
		want string
	}{
		{encodeHeader(2, 7), "54 4c 52 45 43 4f 52 44 01 00 00 00 02 00 00 00 07 00 00 00 00 00 00 00 04 c3 9e db"},
		{appendRecord(nil, &sharedlog.Record{Tags: both, Data: []byte("data")}), "09 00 00 00 44 3a f3 65 02 01 61 01 62 64 61 74 61"},
		{encodeEnd(3), "00 00 00 00 e3 35 6c 57 03 00 00 00 00 00 00 00"},
	} {
		require.Equal(t, c.want, fmt.Sprintf("% x", c.got))
	}
}
