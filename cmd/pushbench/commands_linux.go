package main

import "github.com/spf13/cobra"

func commands(b *bench) []*cobra.Command {
	return []*cobra.Command{newWholeCommand(b), newSendCommand(b), newGatesCommand(b), newClientCommand(b), newLookupCommand(b)}
}
