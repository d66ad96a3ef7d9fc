package main

import "github.com/spf13/cobra"

func commands(b *bench) []*cobra.Command {
	return []*cobra.Command{newWorkerCommand(b), newSendCommand(b), newGatesCommand(b), newGatewayCommand(b), newBesideCommand(b), newCallCommand(b), newClientCommand(b), newServeCommand(b), newLookupCommand(b), newStressCommand(b)}
}
