// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// The EIP-712 domain of a contract, with a deployment salt: local chains redeploy to the same addresses, and a
/// signature must not survive that. (OpenZeppelin's EIP712 has no salt.) Same arithmetic: protocol/signing.py.
abstract contract SigningDomain {
    bytes32 private constant DOMAIN_TYPEHASH =
        keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract,bytes32 salt)");

    bytes32 public immutable deploymentSalt;
    uint256 private immutable _chainId;
    bytes32 private immutable _separator;

    constructor(bytes32 salt) {
        deploymentSalt = salt;
        _chainId = block.chainid;
        _separator = _buildSeparator(salt);
    }

    /// The separator; rebuilt after a fork that changed the chain id.
    function domainSeparator() public view returns (bytes32) {
        return block.chainid == _chainId ? _separator : _buildSeparator(deploymentSalt);
    }

    /// The domain's parts, as in ERC-5267.
    function eip712Domain()
        external
        view
        returns (bytes1, string memory, string memory, uint256, address, bytes32, uint256[] memory)
    {
        return (hex"1f", "proofpool", "1", block.chainid, address(this), deploymentSalt, new uint256[](0));
    }

    function _buildSeparator(bytes32 salt) private view returns (bytes32) {
        return keccak256(
            abi.encode(DOMAIN_TYPEHASH, keccak256("proofpool"), keccak256("1"), block.chainid, address(this), salt)
        );
    }
}
