package local

import (
	"debug/elf"
	"encoding/binary"
	"os"
)

// Where the header of an ELF file has what the kernel looks at first (elf(5)), and what a program header of 64 bits takes.
const (
	elfType, elfMachine                   = 16, 18
	elfHeaderSize, elfHeaders             = 54, 56 // of 64 bits
	programHeaderSize                     = 56     // sizeof(Elf64_Phdr)
	elfHead                               = 64     // sizeof(Elf64_Ehdr)
	machineUnknown            elf.Machine = 0
)

// elfForm says why the kernel would not take a file that begins as an ELF file, as far as its first bytes tell: it is cut short or not for
// this machine (load_elf_binary in fs/binfmt_elf.c). What a machine may take beside its own is the kernel's to say.
func elfForm(head []byte) error {
	whole := make([]byte, max(len(head), elfHead)) // what is missing counts as zeros, as in the kernel
	copy(whole, head)
	at := func(offset int) uint16 { return binary.NativeEndian.Uint16(whole[offset:]) }
	kind, machine, own := elf.Type(at(elfType)), elf.Machine(at(elfMachine)), ownMachine()
	switch {
	case kind != elf.ET_EXEC && kind != elf.ET_DYN:
		return cannot("not a program: its header is of ELF, and of no program; make it again, or copy it again")
	case own == machineUnknown || machine == elf.EM_386 && own == elf.EM_X86_64 || machine == elf.EM_ARM && own == elf.EM_AARCH64:
		return nil
	case machine != own:
		return cannot("it is made for another machine (%s, and this one is %s); build it for this one", machine, own)
	case elf.Class(whole[elf.EI_CLASS]) == elf.ELFCLASS32: // x32, which few kernels take
		return nil
	case at(elfHeaderSize) != programHeaderSize || at(elfHeaders) == 0:
		return cannot("not a program: its header is of ELF and names nothing to load; make it again, or copy it again")
	}
	return nil
}

// ownMachine is what the program that runs here was made for, 0 where that cannot be read or is not of 64 bits.
func ownMachine() elf.Machine {
	file, err := os.Open("/proc/self/exe")
	if err != nil {
		return machineUnknown
	}
	defer func() { _ = file.Close() }()
	head := make([]byte, elfHead)
	if _, err := file.ReadAt(head, 0); err != nil || elf.Class(head[elf.EI_CLASS]) != elf.ELFCLASS64 {
		return machineUnknown
	}
	return elf.Machine(binary.NativeEndian.Uint16(head[elfMachine:]))
}
