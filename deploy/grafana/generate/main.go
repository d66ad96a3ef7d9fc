// Command generate writes the files of the dashboards into a folder.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/pushfleet/pushfleet/deploy/grafana"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: generate FOLDER")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func write(folder string) error {
	for _, d := range grafana.Dashboards() {
		text, err := d.JSON()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, d.File()), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
