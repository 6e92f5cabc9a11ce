package servers

import "slices"

// Known says that a plan also has what is known to be broken, so that it can be seen to
// fail (TAILRACE_SIM_KNOWN=1). The entries below leave the default plans when they are
// mended.
//
//   - full disk: a storage node that closes a segment on a full disk tries again without a
//     pause; no virtual time passes.
//   - copies: a whole copy of a sealed shard outside its addresses is counted, but nobody
//     reads it; so a dead node may stay in the addresses for ever.
//   - hanging disk: a storage node whose disk hangs keeps speaking, so its writers and
//     readers wait as long as the disk hangs. It is healed before progress is asked for.
func (p *Plan) withoutKnown() {
	p.Faults = slices.DeleteFunc(p.Faults, func(f Fault) bool { return f.Kind == faultFull && f.Who[0] == 'n' })
}
