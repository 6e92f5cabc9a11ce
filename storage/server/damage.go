package server

import "tailrace.dev/tailrace/storage/segment"

// damaged is told by the store when a closed segment is found to be damaged.
func (n *Node) damaged(_ segment.ID, err error) {
	n.opt.Logger.Error("a segment is damaged", "node", n.opt.Addr, "error", err)
}
