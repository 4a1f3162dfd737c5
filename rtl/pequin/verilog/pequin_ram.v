// Simple dual-port RAM: one write port, one read port, one clock.
//
// Read: data appear one clock after read_en and are held while read_en is low.
// Collision: a read of the address written in the same clock returns the old word in simulation;
// hardware may return anything (no read-during-write promise), so a user bypasses or avoids it.
//
// Simulation only (no SYNTHESIS): plusarg +NAME.load=FILE fills the memory before the first clock
// from a binary image, +NAME.dump=FILE writes one at the end. An image is the words in order of
// address, each of ceil(WIDTH / 8) bytes, most significant byte first. A short image leaves the
// rest at zero.
module pequin_ram #(
    parameter WIDTH = 8,
    parameter DEPTH = 2,
    parameter ADDR_WIDTH = 1,
    parameter NAME = "ram"
) (
    input  wire                  clk,
    input  wire                  read_en,
    input  wire [ADDR_WIDTH-1:0] read_addr,
    output reg  [WIDTH-1:0]      read_data,
    input  wire                  write_en,
    input  wire [ADDR_WIDTH-1:0] write_addr,
    input  wire [WIDTH-1:0]      write_data
);
    (* ram_style = "block" *)
    reg [WIDTH-1:0] mem [0:DEPTH-1];

    always @(posedge clk) begin
        if (write_en)
            mem[write_addr] <= write_data;
        if (read_en)
            read_data <= mem[read_addr];
    end

`ifndef SYNTHESIS
    integer file;
    integer count;
    integer word;
    reg [8*1024-1:0] path;

    initial begin
        for (word = 0; word < DEPTH; word = word + 1)
            mem[word] = {WIDTH{1'b0}};
        read_data = {WIDTH{1'b0}};
        if ($value$plusargs({NAME, ".load=%s"}, path)) begin
            file = $fopen(path, "rb");
            if (file == 0) begin
                $display("pequin_ram %s: cannot open %0s", NAME, path);
                $fatal(1);
            end
            count = $fread(mem, file);
            $fclose(file);
        end
    end

    final begin
        if ($value$plusargs({NAME, ".dump=%s"}, path)) begin
            file = $fopen(path, "wb");
            for (word = 0; word < DEPTH; word = word + 1)
                $fwrite(file, "%u", mem[word]);
            $fclose(file);
        end
    end
`endif
endmodule
