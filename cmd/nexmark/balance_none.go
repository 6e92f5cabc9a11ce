//go:build nokeyed

package main

import (
	"errors"

	"github.com/spf13/cobra"
)

func newBalance() *cobra.Command {
	return &cobra.Command{
		Use: "balance", Hidden: true, DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("balance: this program is built without what computes that (tag nokeyed): use one that is built without that tag")
		},
	}
}

func checkShares([]float64) error { return nil }
