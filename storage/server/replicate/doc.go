// Package replicate sends the groups of a shard from its primary to a backup: the newest ones from
// memory, older ones from disk. When a stream starts the backup reports the length that it holds, and
// the primary continues there (pitfall L8).
package replicate
